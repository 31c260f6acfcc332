// Legend

function setHighlight(next) {
  highlight = next;
  isOverviewOld = true;
  for (const button of $("legend").children) button.setAttribute("aria-pressed", String(highlight !== null && highlight.cat === Number(button.dataset.cat)));
  for (const button of document.querySelectorAll("[data-column]")) button.setAttribute("aria-pressed", String(highlight !== null && highlight.column === Number(button.dataset.column)));
  draw();
}
{
  const sums = new Float64Array(CATS.length);
  for (let leaf = 0; leaf < N; leaf++) sums[cat[leaf]] += A.leaf_length[leaf];
  CATS.forEach((name, c) => {
    if (!sums[c]) return;
    const button = createElement("button", { type: "button", "data-cat": c, "aria-pressed": "false", title: bytesText(sums[c]), click: () => setHighlight(highlight && highlight.cat === c ? null : { cat: c }) }, swatch(c), LEGEND[name] ?? name, createElement("span", { class: "share" }, share(sums[c])));
    $("legend").append(button);
  });
}

// Mouse, touch and keyboard

function itemUnder(event) {
  const box = chart.getBoundingClientRect(), x = event.clientX - box.left, y = event.clientY - box.top;
  const level = y < ROWS[1][0] - 1 ? SECTION : y < ROWS[2][0] - 1 ? GROUP : LEAFS;
  const at = view[0] + ((view[1] - view[0]) * Math.min(Math.max(x, 0), box.width - 0.01)) / box.width;
  return N ? [level, itemAt(level, below(axis, at, N))] : [WHOLE, 0];
}
let drag = null;
chart.addEventListener("pointerdown", (event) => {
  if (event.button !== 0) return;
  drag = { x: event.clientX, view: [...view], moved: false };
  chart.setPointerCapture(event.pointerId);
});
chart.addEventListener("pointermove", (event) => {
  if (drag) {
    const by = event.clientX - drag.x;
    if (Math.abs(by) > 4) drag.moved = true;
    if (drag.moved) {
      const shift = (by / chart.clientWidth) * (drag.view[1] - drag.view[0]);
      moveTo([drag.view[0] - shift, drag.view[1] - shift], false);
    }
    return;
  }
  const next = itemUnder(event);
  if (!hover || hover[0] !== next[0] || hover[1] !== next[1]) {
    hover = next;
    $("status").textContent = nameOf(next);
    draw();
  }
});
chart.addEventListener("pointerup", (event) => {
  if (drag && !drag.moved) select(itemUnder(event), false);
  drag = null;
});
chart.addEventListener("pointercancel", () => { drag = null; });
chart.addEventListener("pointerleave", () => {
  hover = null;
  $("status").textContent = nameOf(selection);
  draw();
});
chart.addEventListener("dblclick", (event) => fitItem(itemUnder(event)));
chart.addEventListener("wheel", (event) => {
  const box = chart.getBoundingClientRect();
  if (event.ctrlKey || event.metaKey) {
    event.preventDefault();
    const at = (event.clientX - box.left) / box.width, [a, b] = view, factor = Math.exp(Math.min(Math.max(event.deltaY, -120), 120) / 200);
    const centre = a + (b - a) * at, width = (b - a) * factor;
    moveTo([centre - width * at, centre + width * (1 - at)], false);
  } else if (Math.abs(event.deltaX) > Math.abs(event.deltaY) || event.shiftKey) {
    event.preventDefault();
    const shift = ((event.deltaX || event.deltaY) / box.width) * (view[1] - view[0]);
    moveTo([view[0] + shift, view[1] + shift], false);
  }
}, { passive: false });
const KEYS = {
  ArrowLeft: () => step(-1), ArrowRight: () => step(1), ArrowDown: selectChild, ArrowUp: selectParent,
  "+": () => zoom(0.5), "=": () => zoom(0.5), "-": () => zoom(2), Enter: () => fitItem(selection), 0: () => fitItem([WHOLE, 0]),
  Escape: () => { setHighlight(null); select([WHOLE, 0], false); fitItem([WHOLE, 0]); },
  Home: () => select([Math.max(selection[0], SECTION), 0]), End: () => select([Math.max(selection[0], SECTION), count[Math.max(selection[0], SECTION)] - 1]),
  PageUp: () => step(-10), PageDown: () => step(10),
};
chart.addEventListener("keydown", (event) => {
  const act = KEYS[event.key];
  if (!act || event.ctrlKey || event.metaKey || event.altKey || !N) return;
  event.preventDefault();
  act();
});
let brushing = false;
const brush = (event) => {
  const box = overview.getBoundingClientRect(), at = ((event.clientX - box.left) / box.width) * axis[N], half = (view[1] - view[0]) / 2;
  moveTo([at - half, at + half], false);
};
overview.addEventListener("pointerdown", (event) => { brushing = true; overview.setPointerCapture(event.pointerId); brush(event); });
overview.addEventListener("pointermove", (event) => { if (brushing) brush(event); });
overview.addEventListener("pointerup", () => { brushing = false; });

const on = (id, act) => $(id).addEventListener("click", act);
on("zoom-in", () => zoom(0.5));
on("zoom-out", () => zoom(2));
on("zoom-to", () => fitItem(selection));
on("zoom-all", () => fitItem([WHOLE, 0]));
on("go-in", selectChild);
on("go-out", selectParent);
on("go-back", () => step(-1));
on("go-on", () => step(1));
on("scale", (event) => { if (event.target.dataset.scale) setScale(event.target.dataset.scale === "even"); });
on("theme", (event) => {
  if (!event.target.dataset.theme) return;
  setTheme(event.target.dataset.theme);
  isOverviewOld = true;
  showDetail();
  draw();
});
for (const group of [$("scale"), $("theme")]) {
  group.addEventListener("keydown", (event) => {
    const by = { ArrowLeft: -1, ArrowUp: -1, ArrowRight: 1, ArrowDown: 1 }[event.key];
    const at = [...group.children].indexOf(document.activeElement);
    if (!by || at < 0) return;
    event.preventDefault();
    const next = group.children[(at + by + group.children.length) % group.children.length];
    next.focus();
    next.click();
  });
}
darkWanted.addEventListener("change", () => { setTheme(theme); isOverviewOld = true; showDetail(); draw(); });
$("goto").addEventListener("submit", (event) => {
  event.preventDefault();
  const target = Number($("goto-number").value.replace(/[,_\s]/g, "")), kind = $("goto-kind").value;
  if (!Number.isFinite(target) || $("goto-number").value.trim() === "") {
    $("status").textContent = "Expected a number.";
    return;
  }
  if (kind === "byte") {
    if (target >= 0 && target < start[N]) selectByte(target);
    else $("status").textContent = "There is no byte " + number(target) + ": the last one is " + number(start[N] - 1) + ".";
    return;
  }
  const kindNumber = D.section_kinds.indexOf("record batch");
  for (let p = 0; p < P; p++) {
    if (A.section_kind[p] === kindNumber && A.section_number[p] === target) {
      select([SECTION, p], false);
      fitItem([SECTION, p]);
      return;
    }
  }
  $("status").textContent = "There is no record batch " + number(target) + ".";
});
for (const button of document.querySelectorAll("[data-byte]")) {
  button.addEventListener("click", () => { selectByte(Number(button.dataset.byte)); chart.scrollIntoView({ block: "center" }); });
}
for (const button of document.querySelectorAll("[data-column]")) {
  button.addEventListener("click", () => {
    const column = Number(button.dataset.column);
    setHighlight(highlight && highlight.column === column ? null : { column });
    $("drawing").scrollIntoView({ block: "nearest", behavior: still.matches ? "auto" : "smooth" });
  });
}
new ResizeObserver(() => draw()).observe(chart);

setTheme(theme);
root.classList.add("ready");
const fragment = location.hash.match(/^#byte=(\d+)$/);
if (fragment && N) selectByte(Number(fragment[1]));
else select([WHOLE, 0], false);
paint();

// Functions for tests and the console.
window.anatomy = {
  sections: P, leaves: N, total: start[N],
  /** Where a byte is on the screen, at the level of sections (0), groups (1) or leaves (2), in pixels of the window. */
  placeOf(byte, level) {
    const box = chart.getBoundingClientRect(), leaf = leafAtByte(byte);
    const a = axis[firstLeaf(level, itemAt(level, leaf))], b = axis[lastLeaf(level, itemAt(level, leaf))];
    const low = Math.max(a, view[0]), high = Math.min(b, view[1]);
    return { x: box.left + (((low + high) / 2 - view[0]) / (view[1] - view[0])) * box.width, y: box.top + ROWS[level][0] + ROWS[level][1] / 2 };
  },
  selectByte,
  selectLeaf: (leaf) => select([LEAFS, leaf]),
};
