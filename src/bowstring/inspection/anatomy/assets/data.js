// The data of the page, and what follows from it: sections, groups and leaves.

const $ = (id) => document.getElementById(id);
const root = document.documentElement;

// The data: a JSON header and typed arrays behind it.

const VIEWS = { u1: Uint8Array, u4: Uint32Array, i4: Int32Array, f8: Float64Array };
async function unpack() {
  const text = atob($("data").textContent.trim());
  const raw = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) raw[i] = text.charCodeAt(i);
  const plain = new Blob([raw]).stream().pipeThrough(new DecompressionStream("deflate"));
  const unpacked = await new Response(plain).arrayBuffer();
  const size = Number(new DataView(unpacked).getBigUint64(0, true));
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(unpacked, 8, size)));
  const arrays = {};
  for (const [name, [dtype, at, count]] of Object.entries(header.arrays)) {
    arrays[name] = new VIEWS[dtype](unpacked, 8 + size + at, count);
  }
  return [header, arrays];
}

let D, A;
try {
  [D, A] = await unpack();
} catch (error) {
  $("loading").textContent = "This browser cannot unpack the page: " + error.message;
  throw error;
}

// Kinds of sections and leaves

const LEAF = { MAGIC: 0, CONTINUATION: 1, LENGTH: 2, METADATA: 3, PADDING: 4, BUFFER: 5, BODY: 6, FOOTER_LENGTH: 7, UNCLAIMED: 8, UNREAD: 9, OMITTED: 10 };
const CATS = ["framing", "metadata", "padding", "validity", "offsets", "sizes", "type ids", "views", "data", "indices", "body", "unclaimed", "unread", "omitted"];
const CAT = Object.fromEntries(CATS.map((name, i) => [name, i]));
const LEGEND = { framing: "framing", body: "body, not split", unclaimed: "not referenced", unread: "cannot be read", omitted: "left out", data: "values" };
const ROLE_CAT = { values: "data", "index pointers": "offsets", "validity of metadata version 4": "validity" };
const LEAF_CAT = [0, 0, 0, 1, 2, 8, 10, 0, 11, 12, 13];
const METADATA = -2, NO_COLUMN = -1;

const P = A.section_kind.length, N = A.leaf_kind.length;
const start = new Float64Array(N + 1), cat = new Uint8Array(N), sectionOf = new Uint32Array(N);
const sectionFirst = new Uint32Array(P + 1), nodeFirst = new Float64Array(P + 1), variadicFirst = new Uint32Array(P + 1);
const groupFirstList = [], groupColumnList = [];

const sectionKind = (p) => D.section_kinds[A.section_kind[p]];
const layoutOf = (p) => (A.section_layout[p] < 0 ? null : D.layouts[A.section_layout[p]]);
const bufferIndexCache = new Map();
for (const layout of D.layouts) {
  layout.variadic = layout.buffers.reduce((n, buffer) => n + buffer[3], 0);
  layout.cats = Uint8Array.from(layout.buffers, (buffer) => CAT[ROLE_CAT[buffer[1]] ?? buffer[1]] ?? CAT.data);
  layout.columnOf = Int32Array.from(layout.buffers, (buffer) => layout.fields[buffer[0]][3]);
  layout.plain = layout.variadic ? null : Int32Array.from(layout.buffers, (_, i) => i);
}

/** The index in its layout of each buffer of a section; ~index for the variadic data buffers behind a buffer. */
function bufferIndicesOf(p) {
  const layout = layoutOf(p);
  if (!layout) return null;
  if (layout.plain) return layout.plain;
  const counts = A.variadic.subarray(variadicFirst[p], variadicFirst[p] + layout.variadic);
  const key = A.section_layout[p] + ":" + counts.join();
  let indices = bufferIndexCache.get(key);
  if (!indices) {
    const out = [];
    let v = 0;
    layout.buffers.forEach((buffer, i) => {
      out.push(i);
      if (buffer[3]) for (let n = counts[v++]; n > 0; n--) out.push(~i);
    });
    indices = Int32Array.from(out);
    if (bufferIndexCache.size < 5000) bufferIndexCache.set(key, indices);
  }
  return indices;
}

{
  let leaf = 0, at = 0, node = 0, variadic = 0;
  for (let p = 0; p < P; p++) {
    sectionFirst[p] = leaf;
    nodeFirst[p] = node;
    variadicFirst[p] = variadic;
    node += A.section_nodes[p];
    const layout = layoutOf(p);
    if (layout) variadic += layout.variadic;
    const indices = bufferIndicesOf(p);
    const body = A.section_buffers[p] > 0;
    let column = null;
    for (const end = leaf + A.section_leaves[p]; leaf < end; leaf++) {
      const kind = A.leaf_kind[leaf];
      start[leaf] = at;
      at += A.leaf_length[leaf];
      sectionOf[leaf] = p;
      let c = LEAF_CAT[kind], now = column;
      if (kind === LEAF.BUFFER) {
        const index = indices ? indices[A.leaf_buffer[leaf]] : undefined;
        if (index !== undefined) {
          c = index < 0 ? CAT.data : layout.cats[index];
          now = layout.columnOf[index < 0 ? ~index : index];
        } else {
          c = CAT.body;
          now = NO_COLUMN;
        }
      } else if (kind === LEAF.BODY) {
        now = NO_COLUMN;
      } else if (column === null) {
        now = METADATA;
      } else if (column === METADATA && body && kind === LEAF.PADDING && A.leaf_kind[leaf - 1] !== LEAF.METADATA) {
        now = NO_COLUMN;
      }
      cat[leaf] = c;
      if (now !== column) {
        groupFirstList.push(leaf);
        groupColumnList.push(now);
        column = now;
      }
    }
  }
  sectionFirst[P] = N;
  nodeFirst[P] = node;
  variadicFirst[P] = variadic;
  start[N] = at;
}
const G = groupFirstList.length;
const groupFirst = Uint32Array.from([...groupFirstList.splice(0, G), N]);
const groupColumn = Int32Array.from(groupColumnList);

/** The last i with values[i] <= x, of ascending values. */
function below(values, x, count) {
  let low = 0, high = count - 1;
  while (low < high) {
    const mid = (low + high + 1) >> 1;
    if (values[mid] <= x) low = mid;
    else high = mid - 1;
  }
  return low;
}
const groupOfLeaf = (leaf) => below(groupFirst, leaf, G);

// Three levels: sections, groups (a header, a column), leaves. An item is [level, index]; level -1 is the whole.

const WHOLE = -1, SECTION = 0, GROUP = 1, LEAFS = 2;
const count = [P, G, N];
const firstLeaf = (level, i) => (level === WHOLE ? 0 : level === SECTION ? sectionFirst[i] : level === GROUP ? groupFirst[i] : i);
const lastLeaf = (level, i) => (level === WHOLE ? N : level === SECTION ? sectionFirst[i + 1] : level === GROUP ? groupFirst[i + 1] : i + 1);
const startOf = (level, i) => start[firstLeaf(level, i)];
const stopOf = (level, i) => start[lastLeaf(level, i)];
const itemAt = (level, leaf) => (level === WHOLE ? 0 : level === SECTION ? sectionOf[leaf] : level === GROUP ? groupOfLeaf(leaf) : leaf);
const leafAtByte = (byte) => below(start, byte, N);
