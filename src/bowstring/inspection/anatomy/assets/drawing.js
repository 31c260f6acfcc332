// Colours

let ink = {};
function readColours() {
  const style = getComputedStyle(root), take = (name) => style.getPropertyValue("--" + name).trim();
  ink = { cats: CATS.map((name) => take("c-" + name.replaceAll(" ", "-"))), font: take("sans") };
  for (const name of ["card", "ink", "quiet", "line", "line-strong", "accent", "tint-a", "tint-b", "on-tint", "on-role", "c-schema", "c-footer", "c-dictionary", "c-unread", "c-framing", "c-unclaimed", "c-omitted", "alarm"]) ink[name] = take(name);
}
const darkWanted = matchMedia("(prefers-color-scheme: dark)");
let theme = "auto";
try { theme = localStorage.getItem("bowstring-theme") ?? "auto"; } catch { /* a page without storage */ }
function setTheme(name) {
  theme = ["light", "dark"].includes(name) ? name : "auto";
  root.dataset.shade = theme === "auto" ? (darkWanted.matches ? "dark" : "light") : theme;
  for (const button of $("theme").children) button.setAttribute("aria-checked", String(button.dataset.theme === theme));
  try { localStorage.setItem("bowstring-theme", theme); } catch { /* as above */ }
  readColours();
}
const sectionColour = (p) => {
  const kind = sectionKind(p);
  return { schema: ink["c-schema"], footer: ink["c-footer"], "dictionary batch": ink["c-dictionary"], unread: ink["c-unread"], unclaimed: ink["c-unclaimed"], "left out": ink["c-omitted"], start: ink["c-framing"], "end of stream": ink["c-framing"] }[kind] ?? null;
};

// The axis: to scale, or every leaf as wide as the logarithm of its length.

let axis = start, isEven = false, evenAxis = null;
function setScale(even) {
  const [a, b] = view.map((x) => byteOfAxis(x));
  isEven = even;
  if (even && !evenAxis) {
    evenAxis = new Float64Array(N + 1);
    for (let i = 0; i < N; i++) evenAxis[i + 1] = evenAxis[i] + 1 + Math.log2(1 + A.leaf_length[i]);
  }
  axis = even ? evenAxis : start;
  view = [axisOfByte(a), axisOfByte(b)];
  for (const button of $("scale").children) button.setAttribute("aria-checked", String((button.dataset.scale === "even") === even));
  isOverviewOld = true;
  draw();
}
function byteOfAxis(x) {
  const i = below(axis, x, N), width = axis[i + 1] - axis[i];
  return start[i] + (width ? ((x - axis[i]) / width) * A.leaf_length[i] : 0);
}
function axisOfByte(byte) {
  const i = leafAtByte(byte);
  return axis[i] + ((byte - start[i]) / (A.leaf_length[i] || 1)) * (axis[i + 1] - axis[i]);
}

// Drawing

const chart = $("chart"), overview = $("overview");
const RULER = 20, ROWS = [[24, 38], [65, 30], [98, 74]];
let view = [0, start[N]], selection = [WHOLE, 0], hover = null, highlight = null, isOverviewOld = true, pending = false;
let overviewImage = null, overviewWidth = 0;

function draw() {
  if (!pending) {
    pending = true;
    requestAnimationFrame(() => { pending = false; paint(); });
  }
}
function fit(canvas, height) {
  const ratio = window.devicePixelRatio || 1, width = Math.max(50, canvas.clientWidth);
  if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
  }
  const pen = canvas.getContext("2d");
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.clearRect(0, 0, width, height);
  return [pen, width];
}

/** Whether a leaf is dimmed because something else is highlighted. */
function isDim(leaf) {
  if (highlight === null) return false;
  if (highlight.cat !== undefined) return cat[leaf] !== highlight.cat;
  const p = sectionOf[leaf], layout = layoutOf(p), column = groupColumn[groupOfLeaf(leaf)];
  if (!layout || column < 0) return true;
  return layout.dictionary === null ? column !== highlight.column : !(D.dictionaries[layout.dictionary] ?? []).includes(highlight.column);
}

let hatchesOf = null, hatches = {};
const HATCHED = new Set([CAT.padding, CAT.unread, CAT.unclaimed, CAT.omitted]);
/** Hatch everything but data, so that it can be distinguished without colour. */
function fillOf(pen, c) {
  if (!HATCHED.has(c)) return ink.cats[c];
  if (hatchesOf !== root.dataset.shade) {
    hatches = {};
    hatchesOf = root.dataset.shade;
  }
  if (!hatches[c]) {
    const tile = document.createElement("canvas");
    tile.width = tile.height = 6;
    const t = tile.getContext("2d");
    t.fillStyle = ink.cats[c];
    t.globalAlpha = c === CAT.padding ? 0.45 : 0.85;
    t.fillRect(0, 0, 6, 6);
    t.globalAlpha = c === CAT.padding ? 1 : 0.35;
    t.strokeStyle = c === CAT.padding ? ink["line-strong"] : ink.card;
    t.beginPath();
    t.moveTo(-1, 7); t.lineTo(7, -1);
    t.moveTo(-1, 1); t.lineTo(1, -1);
    t.moveTo(5, 7); t.lineTo(7, 5);
    t.stroke();
    hatches[c] = pen.createPattern(tile, "repeat");
  }
  return hatches[c];
}

/** Leaves between two places of the axis; those narrower than a pixel are added up, and shown as shares. */
function paintLeaves(pen, width, [a, b], top, height) {
  const scale = width / (b - a), thin = [];
  const first = below(axis, a, N);
  let bins = null, total = null, merged = 0;
  for (let i = first; i < N && axis[i] < b; i++) {
    const x0 = (axis[i] - a) * scale, w = (axis[i + 1] - axis[i]) * scale;
    if (w >= 1.2) {
      const left = Math.max(x0, -4), right = Math.min(x0 + w, width + 4);
      pen.globalAlpha = isDim(i) ? 0.13 : 1;
      pen.fillStyle = fillOf(pen, cat[i]);
      pen.fillRect(left, top, Math.max(right - left - (w > 4 ? 1 : 0), 1), height);
      if (w > 26) thin.push([i, left, right]);
      continue;
    }
    if (!bins) {
      bins = new Float32Array((Math.ceil(width) + 1) * CATS.length * 2);
      total = new Float32Array(Math.ceil(width) + 1);
    }
    const px = Math.max(0, Math.min(Math.floor(x0 + w / 2), total.length - 1));
    bins[(px * CATS.length + cat[i]) * 2 + (highlight !== null && isDim(i) ? 1 : 0)] += w;
    total[px] += w;
    merged++;
  }
  pen.globalAlpha = 1;
  if (bins) {
    for (let px = 0; px < total.length; px++) {
      if (!total[px]) continue;
      const scaleY = height / total[px];
      let y = top + height;
      for (let k = 0; k < CATS.length * 2; k++) {
        const isUnlit = k >= CATS.length, c = k % CATS.length;
        const v = bins[(px * CATS.length + c) * 2 + (isUnlit ? 1 : 0)];
        if (!v) continue;
        const h = v * scaleY;
        pen.globalAlpha = isUnlit ? 0.13 : 1;
        pen.fillStyle = ink.cats[c];
        pen.fillRect(px, y - h, 1, h);
        y -= h;
      }
    }
    pen.globalAlpha = 1;
  }
  return [thin, merged];
}

/** Write the first of several labels that fits, or truncate the last one. */
function label(pen, wordings, left, right, y, colour) {
  left = Math.max(left, 0) + 6;
  const available = right - left - 5;
  if (available < 12) return;
  let text = wordings.find((wording) => pen.measureText(wording).width <= available) ?? wordings.at(-1);
  if (pen.measureText(text).width > available) {
    let low = 0, high = text.length;
    while (low < high) {
      const mid = (low + high + 1) >> 1;
      if (pen.measureText(text.slice(0, mid) + "…").width <= available) low = mid;
      else high = mid - 1;
    }
    if (low < 6) return;
    text = text.slice(0, low) + "…";
  }
  pen.fillStyle = colour;
  pen.fillText(text, left, y);
}

function paintRow(pen, width, level) {
  const [a, b] = view, scale = width / (b - a), [top, height] = ROWS[level];
  const edge = level === SECTION ? (i) => axis[sectionFirst[i]] : (i) => axis[groupFirst[i]];
  let i = itemAt(level, below(axis, a, N)), run = null, thin = 0;
  pen.font = (level === SECTION ? "600 13px " : "13px ") + ink.font;
  const close = () => {
    if (run === null) return;
    pen.fillStyle = ink["tint-a"];
    pen.fillRect(run[0], top, Math.max(run[1] - run[0], 1), height);
    if (run[2] > 1) {
      const n = number(run[2]), what = level === SECTION ? " messages" : run[3] ? " headers and columns" : " columns";
      label(pen, [n + what + ", too narrow to be drawn separately", n + what, n], run[0], Math.min(run[1], width), top + height / 2 + 5, ink.quiet);
    }
    run = null;
  };
  for (; i < count[level] && edge(i) < b; i++) {
    const x0 = (edge(i) - a) * scale, x1 = (edge(i + 1) - a) * scale, w = x1 - x0;
    if (w < 2.5) {
      thin++;
      run ??= [x0, x1, 0, 0];
      run[1] = x1;
      run[2]++;
      run[3] += level === GROUP && groupColumn[i] < 0;
      if (level === SECTION && sectionKind(i) === "unread") { close(); pen.fillStyle = ink["c-unread"]; pen.fillRect(x0, top, 2, height); }
      continue;
    }
    close();
    const left = Math.max(x0, -4), right = Math.min(x1, width + 4);
    const own = level === SECTION ? sectionColour(i) : null;
    const isHeader = level === GROUP && groupColumn[i] < 0;
    pen.globalAlpha = highlight !== null && level === GROUP && isDim(groupFirst[i]) ? 0.35 : 1;
    pen.fillStyle = own ?? (isHeader ? ink["tint-b"] : level === SECTION ? (A.section_number[i] % 2 ? ink["tint-b"] : ink["tint-a"]) : ink["tint-a"]);
    pen.fillRect(left, top, Math.max(right - left - (w > 4 ? 1 : 0), 1), height);
    if (w > 24) label(pen, level === SECTION ? [sectionTitle(i, false), sectionTitle(i, true), ...(A.section_rows[i] >= 0 ? [number(A.section_number[i])] : [])] : [groupTitle(i)], left, right, top + height / 2 + 5, own ? ink["on-role"] : ink["on-tint"]);
    pen.globalAlpha = 1;
  }
  close();
  return thin;
}

function paintRuler(pen, width) {
  pen.font = "11px " + ink.font;
  pen.fillStyle = ink.quiet;
  if (isEven) {
    pen.fillText("not to scale: a part is as wide as the logarithm of its length", 0, 12);
    return;
  }
  const [a, b] = view, span = b - a, least = (span / width) * 110;
  let step = 1;
  while (step < least) step *= step.toString()[0] === "2" ? 2.5 : 2;
  for (let x = Math.ceil(a / step) * step; x < b; x += step) {
    const px = Math.round(((x - a) / span) * width) + 0.5;
    pen.strokeStyle = ink["line-strong"];
    pen.beginPath();
    pen.moveTo(px, 15);
    pen.lineTo(px, RULER);
    pen.stroke();
    const text = number(x), w = pen.measureText(text).width;
    if (px + w / 2 < width + 2) pen.fillText(text, Math.max(0, px - w / 2), 11);
  }
}

function outline(pen, width, [level, i], colour, weight) {
  if (level === WHOLE) return;
  const [a, b] = view, scale = width / (b - a);
  const x0 = (axis[firstLeaf(level, i)] - a) * scale, x1 = (axis[lastLeaf(level, i)] - a) * scale;
  if (x1 < -2 || x0 > width + 2) return;
  const [top, height] = ROWS[level], left = Math.max(x0, -6), w = Math.max(Math.min(x1, width + 6) - left - 1, 2.5);
  pen.strokeStyle = colour;
  pen.lineWidth = weight;
  pen.strokeRect(left, top - weight / 2, w, height + weight);
  pen.lineWidth = 1;
}

function paint() {
  const [pen, width] = fit(chart, 176);
  pen.textBaseline = "alphabetic";
  paintRuler(pen, width);
  const thinSections = paintRow(pen, width, SECTION), thinGroups = paintRow(pen, width, GROUP);
  const [labels, merged] = paintLeaves(pen, width, view, ...ROWS[LEAFS]);
  pen.font = "13px " + ink.font;
  for (const [leaf, left, right] of labels) {
    if (isDim(leaf)) continue;
    const middle = ROWS[LEAFS][0] + ROWS[LEAFS][1] / 2, isPadding = cat[leaf] === CAT.padding;
    const colour = isPadding ? ink.quiet : ink["on-role"];
    const wide = right - left > 90 && !isPadding;
    label(pen, [leafFacts(leaf).label], left, right, middle + (wide ? -2 : 5), colour);
    if (wide) {
      pen.font = "11px " + ink.font;
      pen.globalAlpha = 0.85;
      label(pen, [human(A.leaf_length[leaf])], left, right, middle + 14, colour);
      pen.globalAlpha = 1;
      pen.font = "13px " + ink.font;
    }
  }
  for (const [at] of D.faults) {
    const x = ((axisOfByte(Math.min(at, start[N])) - view[0]) / (view[1] - view[0])) * width;
    if (x < -4 || x > width + 4) continue;
    const px = Math.min(Math.max(x, 4), width - 4);
    pen.fillStyle = ink.alarm;
    pen.beginPath();
    pen.moveTo(px - 5, 14); pen.lineTo(px + 5, 14); pen.lineTo(px, 22);
    pen.fill();
    pen.fillRect(px - 0.5, 20, 1, 154);
  }
  if (hover) outline(pen, width, hover, ink.ink, 1);
  outline(pen, width, selection, ink.card, 6);
  outline(pen, width, selection, ink.ink, 3);
  paintOverview();
  const notes = [];
  if (highlight?.column !== undefined) notes.push("Only the column " + (D.columns[highlight.column] || "without a name") + " is highlighted; press its name again, or Esc on the map, to show all.");
  if (merged) notes.push(number(merged) + (merged === 1 ? " part is" : " parts are") + " narrower than a pixel. There, each vertical line is divided by their shares; zoom in to separate them.");
  else if (thinSections || thinGroups) notes.push("Parts that are too narrow are drawn as one: zoom in.");
  $("note").textContent = notes.join(" ");
  $("zoom-all").disabled = view[0] <= 0 && view[1] >= axis[N];
}

function paintOverview() {
  const ratio = window.devicePixelRatio || 1;
  const [pen, width] = fit(overview, 26);
  if (isOverviewOld || overviewWidth !== width || !overviewImage) {
    overviewImage = document.createElement("canvas");
    overviewImage.width = overview.width;
    overviewImage.height = overview.height;
    const own = overviewImage.getContext("2d");
    own.setTransform(ratio, 0, 0, ratio, 0, 0);
    paintLeaves(own, width, [0, axis[N]], 4, 18);
    overviewWidth = width;
    isOverviewOld = false;
  }
  pen.globalAlpha = 0.85;
  pen.drawImage(overviewImage, 0, 0, width, 26);
  pen.globalAlpha = 1;
  const x0 = (view[0] / axis[N]) * width, x1 = (view[1] / axis[N]) * width;
  pen.fillStyle = ink.card;
  pen.globalAlpha = 0.72;
  pen.fillRect(0, 0, x0, 26);
  pen.fillRect(x1, 0, width - x1, 26);
  pen.globalAlpha = 1;
  pen.strokeStyle = ink.accent;
  pen.lineWidth = 2;
  pen.strokeRect(Math.min(x0, width - 4) + 1, 2, Math.max(x1 - x0 - 2, 2), 22);
  pen.lineWidth = 1;
}
