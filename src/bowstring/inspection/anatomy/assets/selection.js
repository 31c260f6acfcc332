// Scrolling and zooming

const still = matchMedia("(prefers-reduced-motion: reduce)");
let moving = 0;
function clamp([a, b]) {
  const whole = axis[N], least = Math.min(whole, isEven ? 8 : 24);
  let width = Math.min(Math.max(b - a, least), whole);
  const middle = (a + b) / 2;
  a = Math.min(Math.max(middle - width / 2, 0), whole - width);
  return [a, a + width];
}
function moveTo(target, animate) {
  target = clamp(target);
  cancelAnimationFrame(moving);
  if (!animate || still.matches || N > 400000) {
    view = target;
    draw();
    return;
  }
  const from = view, began = performance.now();
  const step = (now) => {
    const t = Math.min((now - began) / 180, 1), eased = 1 - (1 - t) ** 3;
    view = t < 1 ? [from[0] + (target[0] - from[0]) * eased, from[1] + (target[1] - from[1]) * eased] : target;
    draw();
    if (t < 1) moving = requestAnimationFrame(step);
  };
  moving = requestAnimationFrame(step);
}
function zoom(factor, at = 0.5) {
  const [a, b] = view, centre = a + (b - a) * at, width = (b - a) * factor;
  moveTo([centre - width * at, centre + width * (1 - at)], true);
}
function fitItem([level, i]) {
  const a = axis[firstLeaf(level, i)], b = axis[lastLeaf(level, i)], margin = level === WHOLE ? 0 : (b - a) * 0.06;
  moveTo([a - margin, b + margin], true);
}
function reveal([level, i]) {
  if (level === WHOLE) return;
  const a = axis[firstLeaf(level, i)], b = axis[lastLeaf(level, i)], [v0, v1] = view, width = chart.clientWidth;
  const pixels = ((b - a) / (v1 - v0)) * width;
  if (pixels < 8) {
    const range = Math.max(((b - a) * width) / 60, 1e-9), middle = (a + b) / 2;
    moveTo([middle - range / 2, middle + range / 2], true);
  } else if (a < v0 || b > v1) {
    const span = Math.max(v1 - v0, (b - a) * 1.1), middle = (a + b) / 2;
    moveTo([middle - span / 2, middle + span / 2], true);
  }
}

// Selection

function nameOf([level, i]) {
  const names = [];
  if (level >= SECTION) names.push(sectionTitle(itemAt(SECTION, firstLeaf(level, i)), false));
  if (level >= GROUP) names.push(groupTitle(itemAt(GROUP, firstLeaf(level, i))));
  if (level === LEAFS) names.push(leafFacts(i).label);
  const a = startOf(level, i), b = stopOf(level, i);
  return (names.join(" › ") || D.name) + "  ·  bytes " + number(a) + " to " + number(b - 1) + " (" + human(b - a) + ")";
}
function select(item, shouldReveal = true) {
  selection = item;
  if (shouldReveal) reveal(item);
  hexBytes = chart.clientWidth < 560 ? 96 : 256;
  $("status").textContent = nameOf(item);
  try {
    history.replaceState(null, "", item[0] === LEAFS ? "#byte=" + startOf(...item) : location.pathname + location.search);
  } catch { /* the browser does not allow it, for example in a frame */ }
  draw();
  return showDetail();
}
function step(by) {
  const [level, i] = selection;
  if (level === WHOLE) return;
  select([level, Math.min(Math.max(i + by, 0), count[level] - 1)]);
}
function selectChild() {
  const [level, i] = selection;
  if (level === LEAFS || !N) return;
  select(level === WHOLE ? [SECTION, 0] : [level + 1, itemAt(level + 1, firstLeaf(level, i))]);
}
function selectParent() {
  const [level, i] = selection;
  if (level === WHOLE) return;
  select([level - 1, itemAt(level - 1, firstLeaf(level, i))]);
}
function selectByte(byte) {
  const leaf = leafAtByte(Math.min(Math.max(byte, 0), Math.max(start[N] - 1, 0)));
  return select([LEAFS, leaf]);
}
