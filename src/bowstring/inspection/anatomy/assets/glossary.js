// Titles and labels

const number = (n) => Math.round(n).toLocaleString("en-US");
const bytesText = (n) => number(n) + (n === 1 ? " byte" : " bytes");
function human(n) {
  if (n < 1024) return bytesText(n);
  const units = ["KiB", "MiB", "GiB", "TiB", "PiB"];
  let unit = -1;
  do { n /= 1024; unit++; } while (n >= 999.5 && unit < units.length - 1);
  return n.toFixed(n < 9.995 ? 2 : n < 99.95 ? 1 : 0) + " " + units[unit];
}
function share(n) {
  const of = (100 * n) / (D.total || 1);
  return of === 0 ? "0 %" : of < 0.05 ? "< 0.1 %" : of.toFixed(1) + " %";
}

function sectionTitle(p, isShort) {
  const kind = sectionKind(p), n = A.section_number[p];
  if (kind === "record batch") return n < 0 ? (isShort ? "unlisted" : "Record batch not listed in the footer") : (isShort ? "batch " : "Record batch ") + number(n);
  if (kind === "dictionary batch") {
    const id = A.section_dictionary[p], delta = A.section_flags[p] & 2 ? " delta" : "";
    return (isShort ? "dict " : "Dictionary ") + id + delta;
  }
  if (kind === "start") return isShort ? "ARROW1" : "Beginning";
  if (kind === "unread" && n >= 0) return (isShort ? "unread " : "Cannot be read: batch ") + number(n);
  if (isShort) return { schema: "schema", "end of stream": "end", footer: "footer", unclaimed: "unclaimed", unread: "unread", "left out": "left out" }[kind];
  return { schema: "Schema", "end of stream": "End of stream", footer: "Footer", unclaimed: "Not referenced", unread: "Cannot be read", "left out": "Left out" }[kind];
}
const columnName = (layout, column) =>
  layout.dictionary === null ? (D.columns[column] ?? layout.fields.find((f) => f[3] === column)?.[0] ?? "") || "(no name)" : "values";
function groupTitle(g) {
  const column = groupColumn[g], p = sectionOf[groupFirst[g]];
  if (column === METADATA) {
    const kind = sectionKind(p);
    return { start: "magic string", footer: "footer", unread: "cannot be read", unclaimed: "not referenced", "end of stream": "marker", "left out": "left out" }[kind] ?? "header";
  }
  return column === NO_COLUMN ? "body" : columnName(layoutOf(p), column);
}
function bufferIndexAt(leaf) {
  const indices = A.leaf_kind[leaf] === LEAF.BUFFER ? bufferIndicesOf(sectionOf[leaf]) : null;
  return indices ? indices[A.leaf_buffer[leaf]] : undefined;
}
function fieldPath(layout, field) {
  const names = [];
  for (let f = field; f >= 0; f = layout.fields[f][1]) names.unshift(layout.fields[f][0] || "(no name)");
  return names.join(" › ");
}
/** What a leaf is: the key of its meaning, a short label, and where it belongs. */
function leafFacts(leaf) {
  const p = sectionOf[leaf], kind = A.leaf_kind[leaf], kindOfSection = sectionKind(p), index = bufferIndexAt(leaf);
  if (kind === LEAF.BUFFER) return index === undefined ? { key: "buffer", label: "buffer " + A.leaf_buffer[leaf], p } : bufferFacts(p, index);
  if (kind === LEAF.PADDING) {
    const behind = leaf > sectionFirst[p] ? A.leaf_kind[leaf - 1] : LEAF.BUFFER;
    const key = kindOfSection === "start" ? "padding start" : behind === LEAF.METADATA ? "padding metadata" : "padding body";
    return { key, label: "padding", p };
  }
  const key = { 0: "magic", 1: "continuation", 2: "length", 3: kindOfSection === "footer" ? "footer metadata" : "metadata", 6: "body", 7: "footer length", 8: "unclaimed", 9: "unread", 10: "left out" }[kind];
  const label = { 0: "magic string", 1: "continuation", 2: "length", 3: "metadata", 6: "body", 7: "length of the footer", 8: "not referenced", 9: "cannot be read", 10: "left out" }[kind];
  return { key, label, p };
}
function bufferFacts(p, index) {
  const layout = layoutOf(p), isExtra = index < 0;
  const [field, role, element] = layout.buffers[isExtra ? ~index : index];
  const type = layout.fields[field][2];
  let key = role;
  if (isExtra) key = "data of views";
  else if (role === "offsets") key = type.includes("list_view") ? "offsets of a list view" : type.includes("union") ? "offsets of a union" : /^(large_)?list|^map/.test(type) ? "offsets of a list" : "offsets";
  else if (role === "data") key = element === "bit" ? "data bits" : element === "" ? "data bytes" : "data";
  const label = isExtra ? "data" : role.startsWith("validity") ? "validity" : role === "data" ? "values" : role;
  return { key, label, p, layout, field, role: isExtra ? "data" : role, element: isExtra ? "" : element, type, path: fieldPath(layout, field) };
}
function titleOf(level, i) {
  if (level === WHOLE) return D.name;
  if (level === SECTION) return sectionTitle(i, false);
  if (level === GROUP) return groupTitle(i);
  const facts = leafFacts(i);
  return facts.path ? facts.label + " of " + facts.path : facts.label;
}
