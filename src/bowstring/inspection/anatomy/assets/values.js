// Bytes and values

function embeddedBytes(from, most) {
  const n = A.range_start.length;
  if (!n) return new Uint8Array(0);
  const r = below(A.range_start, from, n), inside = from - A.range_start[r];
  if (inside < 0 || inside >= A.range_length[r]) return new Uint8Array(0);
  const at = rangeFirst[r] + inside;
  return A.bytes.subarray(at, at + Math.min(most, A.range_length[r] - inside));
}
const rangeFirst = new Float64Array(A.range_start.length + 1);
for (let r = 0; r < A.range_start.length; r++) rangeFirst[r + 1] = rangeFirst[r] + A.range_length[r];
async function read(from, most) {
  const embedded = embeddedBytes(from, most);
  if (embedded.length >= most || !localFile) return embedded;
  return new Uint8Array(await localFile.slice(from, from + most).arrayBuffer());
}

async function bytesOf([level, i]) {
  const a = startOf(level, i), size = stopOf(level, i) - a, byteCount = Math.min(size, hexBytes);
  let bytes;
  try {
    bytes = await read(a, byteCount);
  } catch (error) {
    bytes = embeddedBytes(a, byteCount);
  }
  const out = [];
  if (level === LEAFS && bytes.length) out.push(...valuesOf(i, bytes, size));
  out.push(createElement("h3", {}, "Bytes"));
  if (bytes.length) out.push(hexDump(bytes, a));
  const under = createElement("p", { class: "under" });
  if (bytes.length < size) under.append(bytes.length ? "The first " + number(bytes.length) + " of " + bytesText(size) + "." : "This page does not carry these " + bytesText(size) + ".");
  if (bytes.length >= byteCount && byteCount < size && byteCount < 8192) under.append(createElement("button", { type: "button", click: () => { hexBytes *= 4; showDetail(); } }, "Show more"));
  else if (bytes.length < byteCount && !localFile) {
    const input = createElement("input", { type: "file", class: "hidden", "aria-label": "The file that this page is about" });
    input.addEventListener("change", () => {
      const file = input.files[0];
      if (file && file.size !== D.total) {
        alarm.textContent = "That file has " + bytesText(file.size) + "; this page is about one of " + bytesText(D.total) + ".";
      } else if (file) {
        localFile = file;
        showDetail();
      }
    });
    const alarm = createElement("span", { role: "alert" });
    under.append(createElement("label", { class: "button" }, bytes.length ? "Read the rest from the file …" : "Read them from the file …", input), alarm);
  }
  if (under.childNodes.length) out.push(under);
  return out;
}

function hexDump(bytes, from) {
  const dump = createElement("pre", { class: "hex", tabindex: "0", "aria-label": "bytes in hexadecimal" });
  const digits = Math.max(4, (from + bytes.length).toString(16).length);
  const per = chart.clientWidth < 520 ? 8 : 16;
  let leaf = leafAtByte(from);
  for (let row = 0; row < bytes.length; row += per) {
    dump.append(createElement("span", { class: "at" }, (from + row).toString(16).padStart(digits, "0") + "  "));
    let run = "", runCat = -1;
    const close = () => {
      if (run) dump.append(createElement("b", { ink: ink.cats[runCat] }, run));
      run = "";
    };
    for (let k = 0; k < per; k++) {
      const at = row + k;
      if (at < bytes.length) {
        while (leaf < N - 1 && start[leaf + 1] <= from + at) leaf++;
        if (cat[leaf] !== runCat) { close(); runCat = cat[leaf]; }
        run += bytes[at].toString(16).padStart(2, "0");
      } else run += "  ";
      run += k === 7 && per > 8 ? "  " : " ";
    }
    close();
    let text = "";
    for (const byte of bytes.subarray(row, row + per)) text += byte > 31 && byte < 127 ? String.fromCharCode(byte) : "·";
    dump.append(createElement("span", { class: "text" }, " " + text + "\n"));
  }
  return dump;
}

function integer(view, at, size, isSigned, little) {
  if (size <= 4) return Number(isSigned ? [, view.getInt8, view.getInt16, , view.getInt32][size].call(view, at, little) : [, view.getUint8, view.getUint16, , view.getUint32][size].call(view, at, little));
  let value = 0n;
  for (let k = 0; k < size; k++) value |= BigInt(view.getUint8(little ? at + k : at + size - 1 - k)) << BigInt(8 * k);
  return isSigned ? BigInt.asIntN(8 * size, value) : value;
}
function half(bits) {
  const sign = bits >> 15 ? -1 : 1, exponent = (bits >> 10) & 31, rest = bits & 1023;
  if (exponent === 31) return rest ? NaN : sign * Infinity;
  return sign * (exponent ? 2 ** (exponent - 15) * (1 + rest / 1024) : 2 ** -14 * (rest / 1024));
}
const TICKS = { s: 1n, ms: 1000n, us: 1000000n, ns: 1000000000n };
function formatTimestamp(raw, unit) {
  const ticks = TICKS[unit], value = BigInt(raw);
  let seconds = value / ticks, rest = value % ticks;
  if (rest < 0n) { rest += ticks; seconds -= 1n; }
  const date = new Date(Number(seconds) * 1000);
  if (isNaN(date)) return String(raw);
  const places = String(ticks).length - 1;
  return date.toISOString().slice(0, 19).replace("T", " ") + (places ? "." + String(rest).padStart(places, "0") : "");
}
function formatDecimal(value, scale) {
  const digits = (value < 0n ? -value : value).toString().padStart(scale + 1, "0");
  const text = scale > 0 ? digits.slice(0, -scale) + "." + digits.slice(-scale) : digits + "0".repeat(-scale);
  return (value < 0n ? "-" : "") + text;
}
/** Format a value according to the name of its type. */
function formatValue(raw, type) {
  let match;
  if ((match = type.match(/^timestamp\[(s|ms|us|ns)(?:, tz=(.*))?\]/))) return formatTimestamp(raw, match[1]) + (match[2] ? " UTC" : "");
  if (type === "date32[day]") return formatTimestamp(BigInt(raw) * 86400n, "s").slice(0, 10);
  if (type === "date64[ms]") return formatTimestamp(raw, "ms").slice(0, 10);
  if ((match = type.match(/^time(?:32|64)\[(s|ms|us|ns)\]/))) return formatTimestamp(raw, match[1]).slice(11) || String(raw);
  if ((match = type.match(/^duration\[(s|ms|us|ns)\]/))) return raw + " " + match[1];
  return String(raw);
}
const hexText = (bytes) => Array.from(bytes, (b) => b.toString(16).padStart(2, "0")).join("");
const safeText = (text) => text.replace(/[\u0000-\u001f\u007f-\u009f\u200e\u200f\u202a-\u202e\u2066-\u2069]/g, (c) => "\\u" + c.charCodeAt(0).toString(16).padStart(4, "0"));

function valuesOf(leaf, bytes, size) {
  const kind = A.leaf_kind[leaf], view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  const list = (items) => {
    const element = createElement("ul", { class: "values" });
    for (const [index, value, isNull] of items) element.append(createElement("li", isNull ? { class: "null" } : {}, index === null ? null : createElement("i", {}, String(index)), value));
    return element;
  };
  if ((kind === LEAF.LENGTH || kind === LEAF.FOOTER_LENGTH) && bytes.length >= 4) return [createElement("h3", {}, "Value"), list([[null, number(view.getInt32(0, true)) + " bytes"]])];
  if (kind === LEAF.METADATA) return metadataOf(sectionOf[leaf], list);
  if (kind !== LEAF.BUFFER) return [];
  const facts = leafFacts(leaf);
  if (!facts.layout) return [];
  if (codecOf(facts.p)) {
    if (bytes.length < 8) return [];
    const claim = view.getBigInt64(0, true);
    const [, text] = D.glossary.compressed;
    const decompressed = decompressedBytes(leaf);
    const stored = claim === -1n ? "-1: stored as it is, " + bytesText(size - 8) : number(Number(claim)) + " bytes come out of " + number(size - 8) + " (" + codecOf(facts.p) + ")";
    const elements = [createElement("h3", {}, "Compressed"), createElement("p", { class: "quiet" }, text), list([["length", stored]])];
    return decompressed ? [...decodeValues(leaf, facts, decompressed, claim === -1n ? size - 8 : Number(claim), list), ...elements] : elements;
  }
  return decodeValues(leaf, facts, bytes, size, list);
}
/** The fields and buffers of a header, or the batches of the footer, from the data of the map. */
function metadataOf(p, list) {
  const most = 24, out = [], layout = layoutOf(p);
  const addList = (title, items, total) => {
    if (!total) return;
    out.push(createElement("h3", {}, title), list(items));
    if (total > items.length) out.push(createElement("p", { class: "under" }, "The first " + items.length + " of " + number(total) + "."));
  };
  if (sectionKind(p) === "footer") {
    const items = [];
    let total = 0;
    for (let q = 0; q < P; q++) {
      if (A.section_body_offset[q] < 0 || !(A.section_flags[q] & 1)) continue;
      if (++total > most) continue;
      const from = startOf(SECTION, q);
      items.push([sectionTitle(q, true), "at " + number(from) + ": " + number(A.section_body_offset[q] - from) + " + " + bytesText(stopOf(SECTION, q) - A.section_body_offset[q])]);
    }
    addList("Blocks: offset, header and body", items, total);
    return out;
  }
  if (!layout || !A.section_nodes[p]) return out;
  const nodes = layout.fields.slice(0, most).map((_, f) => {
    const node = nodeOf(p, f);
    return [f, fieldPath(layout, f) + ": " + number(node.length) + (node.nulls ? ", " + number(node.nulls) + " null" : "")];
  });
  addList("Field nodes: slots and nulls", nodes, A.section_nodes[p]);
  const indices = bufferIndicesOf(p), places = new Map();
  for (let leaf = sectionFirst[p]; leaf < sectionFirst[p + 1]; leaf++) if (A.leaf_buffer[leaf] >= 0) places.set(A.leaf_buffer[leaf], leaf);
  const buffers = [];
  for (let n = 0; n < Math.min(indices.length, most); n++) {
    const facts = bufferFacts(p, indices[n]), leaf = places.get(n), claimed = D.shared[p]?.[n];
    const size = claimed ? claimed[1] : leaf === undefined ? 0 : A.leaf_length[leaf];
    const from = claimed ? claimed[0] : leaf === undefined ? 0 : start[leaf] - A.section_body_offset[p];
    buffers.push([n, facts.path + " " + facts.label + ": " + (size ? number(size) + " at " + number(from) : "nothing")]);
  }
  addList("Buffers: bytes, and offset in the body", buffers, A.section_buffers[p]);
  return out;
}
/** The first decompressed bytes of a buffer, if the page has them. */
function decompressedBytes(leaf) {
  const n = A.decompressed_leaf.length;
  if (!n) return null;
  const at = below(A.decompressed_leaf, leaf, n);
  return A.decompressed_leaf[at] === leaf ? A.decompressed_bytes.subarray(decompressedFirst[at], decompressedFirst[at] + A.decompressed_length[at]) : null;
}
const decompressedFirst = new Float64Array(A.decompressed_leaf.length + 1);
for (let i = 0; i < A.decompressed_leaf.length; i++) decompressedFirst[i + 1] = decompressedFirst[i] + A.decompressed_length[i];

/** The available bytes of the buffer of the same field with another role, or null. */
function beside(leaf, facts, role) {
  const g = groupOfLeaf(leaf);
  for (let other = groupFirst[g]; other < Math.min(groupFirst[g + 1], leaf); other++) {
    const index = bufferIndexAt(other);
    if (index === undefined || index < 0) continue;
    const [field, itsRole, element] = facts.layout.buffers[index];
    if (field !== facts.field || itsRole !== role) continue;
    const bytes = codecOf(facts.p) ? decompressedBytes(other) : embeddedBytes(start[other], Math.min(A.leaf_length[other], 512));
    return bytes && bytes.length ? [bytes, Number(element.slice(1))] : null;
  }
  return null;
}

/** Mark null slots and return their number. */
function markNulls(items, validity) {
  let nulls = 0;
  for (const item of validity ? items : []) {
    if (item[0] >> 3 < validity[0].length && !((validity[0][item[0] >> 3] >> (item[0] & 7)) & 1)) {
      item[2] = true;
      nulls++;
    }
  }
  return nulls;
}

/** The values of strings and bytes one by one, where their offsets are on the page. */
function splitValues(leaf, facts, bytes, isText) {
  const offsets = beside(leaf, facts, "offsets"), items = [];
  if (!offsets) return items;
  const [raw, width] = offsets, view = new DataView(raw.buffer, raw.byteOffset, raw.length), node = nodeOf(facts.p, facts.field);
  const offset = (j) => Number(integer(view, j * width, width, true, !D.big));
  for (let j = 0; (j + 2) * width <= raw.length && j < Math.min(node ? node.length : 0, 48); j++) {
    const from = offset(j), to = offset(j + 1);
    if (from < 0 || to < from || to > bytes.length) break;
    const head = bytes.subarray(from, Math.min(to, from + 200)), more = to - from > 200 ? "…" : "";
    items.push([j, isText ? "“" + safeText(new TextDecoder().decode(head)) + more + "”" : hexText(head) + more || "(empty)"]);
  }
  return items;
}

/** The values of a buffer, as far as its bytes are available. */
function decodeValues(leaf, facts, bytes, size, list) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  const little = !D.big, node = nodeOf(facts.p, facts.field), slots = node ? node.length : Infinity;
  const { element, type, role } = facts, items = [];
  const extra = role === "offsets" && !type.includes("union") && !type.includes("list_view") ? 1 : 0;
  const title = createElement("h3", {}, role === "validity" ? "Which slots hold a value" : "Values");
  if (element === "bit") {
    for (let j = 0; j < Math.min(slots, bytes.length * 8, 96); j++) {
      const bit = (bytes[j >> 3] >> (j & 7)) & 1;
      items.push([j, role.startsWith("validity") ? (bit ? "valid" : "null") : bit ? "true" : "false", role.startsWith("validity") && !bit]);
    }
  } else if (element === "") {
    const isText = /string|utf8|json/.test(type);
    const values = facts.key === "data bytes" ? splitValues(leaf, facts, bytes, isText) : [];
    if (values.length) {
      for (const item of markNulls(values, beside(leaf, facts, "validity")) ? values : []) if (item[2]) item[1] = "null";
      return [createElement("h3", {}, "Values"), list(values), ...(values.length < (nodeOf(facts.p, facts.field)?.length ?? 0) ? [createElement("p", { class: "under" }, "The first " + values.length + " slots.")] : [])];
    }
    if (!isText) return [];
    let end = bytes.length;
    if (end < size) while (end > 0 && end > bytes.length - 4 && (bytes[end - 1] & 192) === 128) end--;
    if (end < size && end > 0 && bytes[end - 1] > 191) end--;
    return [createElement("h3", {}, "As text"), createElement("p", { class: "string" }, safeText(new TextDecoder().decode(bytes.subarray(0, Math.min(end, 1024)))) + (end < size ? " …" : ""))];
  } else if (role === "views") {
    for (let j = 0; (j + 1) * 16 <= bytes.length && j < Math.min(slots, 32); j++) {
      const length = view.getInt32(j * 16, little), isText = type.includes("string");
      const shownAs = (from, to) => (isText ? "“" + safeText(new TextDecoder().decode(bytes.subarray(from, to))) + "”" : hexText(bytes.subarray(from, to)));
      const value = length <= 12 ? shownAs(j * 16 + 4, j * 16 + 4 + Math.max(length, 0)) : shownAs(j * 16 + 4, j * 16 + 8) + "… " + length + " bytes in data buffer " + view.getInt32(j * 16 + 8, little) + " at " + view.getInt32(j * 16 + 12, little);
      items.push([j, value]);
    }
  } else {
    const width = Number(element.slice(1)), form = element[0];
    for (let j = 0; (j + 1) * width <= bytes.length && j < Math.min(slots + extra, 64); j++) {
      const at = j * width, decimal = type.match(/^decimal\d+\((\d+), (-?\d+)\)/);
      let value;
      if (decimal) value = formatDecimal(BigInt(integer(view, at, width, true, little)), Number(decimal[2]));
      else if (form === "i" || form === "u") value = role === "data" ? formatValue(integer(view, at, width, form === "i", little), type) : String(integer(view, at, width, form === "i", little));
      else if (form === "f") value = String(width === 8 ? view.getFloat64(at, little) : width === 4 ? view.getFloat32(at, little) : half(view.getUint16(at, little)));
      else value = hexText(bytes.subarray(at, at + width));
      items.push([j, value]);
    }
  }
  const nulls = ["data", "views", "indices"].includes(role) ? markNulls(items, beside(leaf, facts, "validity")) : 0;
  const elements = items.length ? [title, list(items)] : [];
  if (items.length && items.length < slots + extra) elements.push(createElement("p", { class: "under" }, "The first " + items.length + (slots < Infinity ? " of " + number(slots + extra) : "") + "."));
  if (nulls) elements.push(createElement("p", { class: "under" }, "Marked slots are null; their contents are ignored."));
  return elements;
}
