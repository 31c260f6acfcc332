// The panel

function createElement(tag, attributes = {}, ...inside) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "click") element.addEventListener("click", value);
    else if (name === "colour") element.style.background = value;
    else if (name === "ink") element.style.color = value;
    else element.setAttribute(name, value);
  }
  element.append(...inside.filter((item) => item !== null));
  return element;
}
const swatch = (c) => createElement("span", { class: "swatch", "aria-hidden": "true", colour: "var(--c-" + CATS[c].replaceAll(" ", "-") + ")" });

function meaningKey([level, i]) {
  if (level === WHOLE) return D.format;
  if (level === SECTION) return sectionKind(i);
  if (level === LEAFS) return leafFacts(i).key;
  const column = groupColumn[i], p = sectionOf[groupFirst[i]];
  if (column === NO_COLUMN) return "body";
  if (column !== METADATA) return layoutOf(p).dictionary === null ? "column" : "dictionary values";
  return ["start", "footer", "end of stream", "unread", "unclaimed", "left out"].includes(sectionKind(p)) ? sectionKind(p) : "metadata group";
}

function nodeOf(p, field) {
  if (field >= A.section_nodes[p]) return null;
  const at = (nodeFirst[p] + field) * 2;
  return { length: A.nodes[at], nulls: A.nodes[at + 1] };
}
const codecOf = (p) => (A.section_codec[p] < 0 ? null : ["LZ4", "Zstandard"][A.section_codec[p]]);

function factsOf([level, i]) {
  const out = [], a = startOf(level, i), b = stopOf(level, i);
  if (b > a) out.push(["Bytes", number(a) + " to " + number(b - 1)], ["In hexadecimal", "0x" + a.toString(16) + " to 0x" + (b - 1).toString(16)]);
  out.push(["Length", b - a < 1024 ? bytesText(b - a) : human(b - a) + " (" + bytesText(b - a) + ")"]);
  if (level !== WHOLE) out.push(["Share of the file", share(b - a)]);
  const p = level === WHOLE ? -1 : itemAt(SECTION, firstLeaf(level, i));
  if (level === SECTION && A.section_rows[p] >= 0) {
    out.push([sectionKind(p) === "dictionary batch" ? "Values" : "Rows", number(A.section_rows[p])]);
    out.push(["Buffers", number(A.section_buffers[p])]);
    out.push(["Compression", codecOf(p) ?? "none"]);
    if (A.section_flags[p] & 2) out.push(["Delta", "yes: its values are appended"]);
    if (A.section_flags[p] & 4) out.push(["Framing", "legacy, before Arrow 0.15"]);
    if (A.section_flags[p] & 8) out.push(["Custom metadata", "yes"]);
    const users = D.dictionaries[String(A.section_dictionary[p])];
    if (users && sectionKind(p) === "dictionary batch") out.push(["Used by", users.slice(0, 12).map((c) => D.columns[c]).join(", ") + (users.length > 12 ? ", …" : "")]);
  }
  if (level === GROUP && groupColumn[i] >= 0) {
    const layout = layoutOf(p), field = layout.fields.findIndex((f) => f[3] === groupColumn[i]);
    const node = nodeOf(p, field);
    out.push(["Type", layout.fields[field][2]]);
    if (node) out.push(["Slots", number(node.length) + ", " + (node.nulls ? number(node.nulls) + " of them null" : "none of them null")]);
  }
  if (level === LEAFS) {
    const facts = leafFacts(i);
    if (facts.key === "metadata") {
      out.push(["Message", sectionKind(p)]);
      if (A.section_rows[p] >= 0) out.push(["Rows", number(A.section_rows[p])], ["Body", bytesText(A.section_body_bytes[p]) + " in " + number(A.section_buffers[p]) + " buffers of " + number(A.section_nodes[p]) + " fields"], ["Compression", codecOf(p) ?? "none"]);
    }
    if (facts.path) {
      const node = nodeOf(p, facts.field);
      out.push(["Column", facts.path], ["Type", facts.type]);
      if (node) out.push(["Slots", number(node.length) + ", " + (node.nulls ? number(node.nulls) + " of them null" : "none of them null")]);
      out.push(["Buffer", "number " + A.leaf_buffer[i] + " of its message"]);
      const from = a - A.section_body_offset[p];
      if (A.section_body_offset[p] >= 0) out.push(["In the body", "from byte " + number(from) + " on"]);
      if (codecOf(p)) out.push(["Compression", codecOf(p)]);
    }
  }
  return out;
}

function warningsOf([level, i]) {
  const a = startOf(level, i), b = stopOf(level, i), out = [];
  for (const [at, message] of D.faults) if (level !== WHOLE && at >= a && (at < b || (b === start[N] && at === b))) out.push("At byte " + number(at) + ": " + message);
  if (level === WHOLE) return out;
  const p = itemAt(SECTION, firstLeaf(level, i));
  if (level === SECTION && !(A.section_flags[p] & 1)) out.push("The footer does not list this message: readers of the file skip it.");
  const shared = level === LEAFS && A.leaf_kind[i] === LEAF.BUFFER ? D.shared[p]?.[A.leaf_buffer[i]] : null;
  if (shared && shared[1] !== A.leaf_length[i]) out.push("The header gives this buffer " + bytesText(shared[1]) + " from byte " + number(shared[0]) + " of the body on; some of them also belong to another buffer, or are missing.");
  return out.slice(0, 5);
}

/** The first and last sections of the selected item, and the number of omitted ones. */
function childrenOf([level, i]) {
  const most = level === WHOLE ? 20 : 40;
  if (level === LEAFS) return [[], 0, []];
  const inner = level + 1, first = itemAt(inner, firstLeaf(level, i));
  const last = N ? itemAt(inner, lastLeaf(level, i) - 1) : -1, count = last - first + 1;
  const span = (from, to) => Array.from({ length: Math.max(0, to - from) }, (_, k) => [inner, from + k]);
  return count <= most ? [span(first, last + 1), 0, []] : [span(first, first + most - 2), count - most, span(last - 1, last + 1)];
}
/** The empty buffers of a column, which are not on the map. */
function emptyBuffers(g) {
  const p = sectionOf[groupFirst[g]], indices = bufferIndicesOf(p), layout = layoutOf(p);
  if (!indices || groupColumn[g] < 0) return [];
  const there = new Set();
  for (let leaf = groupFirst[g]; leaf < groupFirst[g + 1]; leaf++) there.add(A.leaf_buffer[leaf]);
  const out = [];
  for (let n = 0; n < indices.length && out.length < 40; n++) {
    const index = indices[n];
    if (!there.has(n) && layout.columnOf[index < 0 ? ~index : index] === groupColumn[g]) out.push(bufferFacts(p, index));
  }
  return out;
}

const detail = $("detail");
let hexBytes = 256, localFile = null, lastTurn = 0;

async function showDetail() {
  const item = selection, [level, i] = item, turn = ++lastTurn;
  const [title, text, headings] = D.glossary[meaningKey(item)];
  const crumbs = createElement("nav", { class: "crumbs", "aria-label": "Location" });
  for (let up = WHOLE; up < level; up++) {
    const above = [up, itemAt(up, firstLeaf(level, i))];
    crumbs.append(createElement("button", { type: "button", click: () => select(above) }, up === WHOLE ? "whole " + D.format : titleOf(...above)), createElement("span", { "aria-hidden": "true" }, "›"));
  }
  crumbs.append(createElement("span", {}, level === WHOLE ? "whole " + D.format : level === LEAFS ? leafFacts(i).label : titleOf(level, i)));

  const left = createElement("div", {}), right = createElement("div", {});
  const heading = level === WHOLE ? title : level === LEAFS ? title : titleOf(level, i);
  left.append(createElement("h2", {}, level === LEAFS ? swatch(cat[i]) : null, heading));
  left.append(createElement("p", { class: "meaning" }, text));
  const source = createElement("p", { class: "source" }, headings[0][1].includes("Columnar") ? "Arrow Columnar Format, " : "Arrow IPC Format, ");
  headings.forEach(([name, link], n) => {
    if (n) source.append(", ");
    source.append(createElement("a", { href: link, rel: "noreferrer noopener", target: "_blank" }, "«" + name + "»"));
  });
  left.append(source);
  for (const warning of warningsOf(item)) left.append(createElement("p", { class: "warn" }, warning));
  const what = createElement("dl", { class: "what" });
  for (const [name, value] of factsOf(item)) what.append(createElement("dt", {}, name), createElement("dd", {}, value));
  left.append(what);

  const [children, more, last] = childrenOf(item);
  if (children.length) {
    right.append(createElement("h3", {}, level === WHOLE ? "Contents" : level === SECTION ? "Contents of this message" : "Its parts"));
    const list = createElement("ul", { class: "contents" });
    const add = (child) => {
      const [l, k] = child, facts = l === LEAFS ? leafFacts(k) : null;
      const name = l === LEAFS && facts.layout ? facts.label + (facts.layout.fields[facts.field][1] >= 0 ? " of " + facts.path : "") : titleOf(l, k);
      list.append(createElement("li", {}, l === LEAFS ? swatch(cat[k]) : createElement("span"), createElement("button", { type: "button", class: "link", click: () => select(child) }, name), createElement("span", { class: "size" }, human(stopOf(l, k) - startOf(l, k)))));
    };
    children.forEach(add);
    if (more) list.append(createElement("li", { class: "quiet" }, createElement("span"), createElement("span", {}, "… " + number(more) + " more, on the map")));
    last.forEach(add);
    if (level === GROUP) for (const facts of emptyBuffers(i)) list.append(createElement("li", { class: "quiet" }, createElement("span"), createElement("span", {}, facts.label + (facts.layout.fields[facts.field][1] >= 0 ? " of " + facts.path : "") + (facts.role.startsWith("validity") ? ": left out, without nulls" : ": empty")), createElement("span", { class: "size" }, "0 bytes")));
    right.append(list);
  }
  if (level !== WHOLE) right.append(...(await bytesOf(item)));
  if (turn !== lastTurn) return;
  detail.replaceChildren(crumbs, left, right);
}
