"use strict";
(async () => {
  const $ = (id) => document.getElementById(id);
  const root = document.documentElement;

  // The data: a JSON header and typed arrays behind it.

  const VIEWS = { u1: Uint8Array, u4: Uint32Array, i4: Int32Array, f8: Float64Array };
  async function unpack() {
    const text = atob($("data").textContent.trim());
    const raw = new Uint8Array(text.length);
    for (let i = 0; i < text.length; i++) raw[i] = text.charCodeAt(i);
    const plain = new Blob([raw]).stream().pipeThrough(new DecompressionStream("deflate"));
    const held = await new Response(plain).arrayBuffer();
    const size = Number(new DataView(held).getBigUint64(0, true));
    const header = JSON.parse(new TextDecoder().decode(new Uint8Array(held, 8, size)));
    const arrays = {};
    for (const [name, [dtype, at, count]] of Object.entries(header.arrays)) {
      arrays[name] = new VIEWS[dtype](held, 8 + size + at, count);
    }
    return [header, arrays];
  }

  let D, A;
  try {
    [D, A] = await unpack();
  } catch (error) {
    $("loading").textContent = "This browser cannot unpack the page: " + error.message;
    return;
  }

  // What everything is

  const LEAF = { MAGIC: 0, CONTINUATION: 1, LENGTH: 2, METADATA: 3, PADDING: 4, BUFFER: 5, BODY: 6, FOOTER_LENGTH: 7, UNCLAIMED: 8, UNREAD: 9 };
  const CATS = ["framing", "metadata", "padding", "validity", "offsets", "sizes", "type ids", "views", "data", "indices", "body", "unclaimed", "unread"];
  const CAT = Object.fromEntries(CATS.map((name, i) => [name, i]));
  const LEGEND = { framing: "framing", body: "body, not told apart", unclaimed: "claimed by nothing", unread: "cannot be read", data: "values" };
  const ROLE_CAT = { values: "data", "index pointers": "offsets", "validity of metadata version 4": "validity" };
  const LEAF_CAT = [0, 0, 0, 1, 2, 8, 10, 0, 11, 12];
  const METADATA = -2, NO_COLUMN = -1;

  const P = A.part_kind.length, N = A.leaf_kind.length;
  const start = new Float64Array(N + 1), cat = new Uint8Array(N), partOf = new Uint32Array(N);
  const partFirst = new Uint32Array(P + 1), nodeFirst = new Float64Array(P + 1), variadicFirst = new Uint32Array(P + 1);
  const groupFirstList = [], groupColumnList = [];

  const segmentOf = (p) => D.segments[A.part_kind[p]];
  const planOf = (p) => (A.part_plan[p] < 0 ? null : D.plans[A.part_plan[p]]);
  const slotCache = new Map();
  for (const plan of D.plans) {
    plan.variadic = plan.slots.reduce((n, slot) => n + slot[3], 0);
    plan.cats = Uint8Array.from(plan.slots, (slot) => CAT[ROLE_CAT[slot[1]] ?? slot[1]] ?? CAT.data);
    plan.columnOf = Int32Array.from(plan.slots, (slot) => plan.fields[slot[0]][3]);
    plan.plain = plan.variadic ? null : Int32Array.from(plan.slots, (_, i) => i);
  }

  /** The slot of each buffer of a part; ~slot for the variadic data buffers behind slot. */
  function slotsOf(p) {
    const plan = planOf(p);
    if (!plan) return null;
    if (plan.plain) return plan.plain;
    const counts = A.variadic.subarray(variadicFirst[p], variadicFirst[p] + plan.variadic);
    const key = A.part_plan[p] + ":" + counts.join();
    let slots = slotCache.get(key);
    if (!slots) {
      const out = [];
      let v = 0;
      plan.slots.forEach((slot, i) => {
        out.push(i);
        if (slot[3]) for (let n = counts[v++]; n > 0; n--) out.push(~i);
      });
      slots = Int32Array.from(out);
      if (slotCache.size < 5000) slotCache.set(key, slots);
    }
    return slots;
  }

  {
    let leaf = 0, at = 0, node = 0, variadic = 0;
    for (let p = 0; p < P; p++) {
      partFirst[p] = leaf;
      nodeFirst[p] = node;
      variadicFirst[p] = variadic;
      node += A.part_nodes[p];
      const plan = planOf(p);
      if (plan) variadic += plan.variadic;
      const slots = slotsOf(p);
      const body = A.part_buffers[p] > 0;
      let column = null;
      for (const end = leaf + A.part_leaves[p]; leaf < end; leaf++) {
        const kind = A.leaf_kind[leaf];
        start[leaf] = at;
        at += A.leaf_length[leaf];
        partOf[leaf] = p;
        let c = LEAF_CAT[kind], now = column;
        if (kind === LEAF.BUFFER) {
          const slot = slots ? slots[A.leaf_buffer[leaf]] : undefined;
          if (slot !== undefined) {
            c = slot < 0 ? CAT.data : plan.cats[slot];
            now = plan.columnOf[slot < 0 ? ~slot : slot];
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
    partFirst[P] = N;
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

  // Three levels: parts, groups (a header, a column), leaves. An item is [level, index]; level -1 is the whole.

  const WHOLE = -1, PART = 0, GROUP = 1, LEAFS = 2;
  const count = [P, G, N];
  const firstLeaf = (level, i) => (level === WHOLE ? 0 : level === PART ? partFirst[i] : level === GROUP ? groupFirst[i] : i);
  const lastLeaf = (level, i) => (level === WHOLE ? N : level === PART ? partFirst[i + 1] : level === GROUP ? groupFirst[i + 1] : i + 1);
  const startOf = (level, i) => start[firstLeaf(level, i)];
  const stopOf = (level, i) => start[lastLeaf(level, i)];
  const itemAt = (level, leaf) => (level === WHOLE ? 0 : level === PART ? partOf[leaf] : level === GROUP ? groupOfLeaf(leaf) : leaf);
  const leafAtByte = (byte) => below(start, byte, N);

  // Words

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
    return of === 0 ? "0 %" : of < 0.05 ? "under 0.1 %" : of.toFixed(1) + " %";
  }

  function partTitle(p, isShort) {
    const kind = segmentOf(p), n = A.part_number[p];
    if (kind === "record batch") return n < 0 ? (isShort ? "unlisted" : "Record batch that the footer does not list") : (isShort ? "batch " : "Record batch ") + number(n);
    if (kind === "dictionary batch") {
      const id = A.part_dictionary[p], delta = A.part_flags[p] & 2 ? " delta" : "";
      return (isShort ? "dict " : "Dictionary ") + id + delta;
    }
    if (kind === "tensor" || kind === "sparse tensor") return (isShort ? "tensor " : kind === "tensor" ? "Tensor " : "Sparse tensor ") + n;
    if (kind === "start") return isShort ? "ARROW1" : "Beginning";
    if (kind === "unread" && n >= 0) return (isShort ? "unread " : "Cannot be read: batch ") + number(n);
    if (isShort) return { schema: "schema", "end of stream": "end", footer: "footer", unclaimed: "unclaimed", unread: "unread" }[kind];
    return { schema: "Schema", "end of stream": "End of stream", footer: "Footer", unclaimed: "Claimed by nothing", unread: "Cannot be read" }[kind];
  }
  const columnName = (plan, column) =>
    plan.dictionary === null ? (D.columns[column] ?? plan.fields.find((f) => f[3] === column)?.[0] ?? "") || "(no name)" : "values";
  function groupTitle(g) {
    const column = groupColumn[g], p = partOf[groupFirst[g]];
    if (column === METADATA) {
      const kind = segmentOf(p);
      return { start: "magic string", footer: "footer", unread: "cannot be read", unclaimed: "claimed by nothing", "end of stream": "marker" }[kind] ?? "header";
    }
    return column === NO_COLUMN ? "body" : columnName(planOf(p), column);
  }
  function slotAt(leaf) {
    const slots = A.leaf_kind[leaf] === LEAF.BUFFER ? slotsOf(partOf[leaf]) : null;
    return slots ? slots[A.leaf_buffer[leaf]] : undefined;
  }
  function fieldPath(plan, field) {
    const names = [];
    for (let f = field; f >= 0; f = plan.fields[f][1]) names.unshift(plan.fields[f][0] || "(no name)");
    return names.join(" › ");
  }
  /** What a leaf is: the key of its meaning, a short label, and where it belongs. */
  function leafFacts(leaf) {
    const p = partOf[leaf], kind = A.leaf_kind[leaf], segment = segmentOf(p), slot = slotAt(leaf);
    if (kind === LEAF.BUFFER) return slot === undefined ? { key: "buffer", label: "buffer " + A.leaf_buffer[leaf], p } : bufferFacts(p, slot);
    if (kind === LEAF.PADDING) {
      const behind = leaf > partFirst[p] ? A.leaf_kind[leaf - 1] : LEAF.BUFFER;
      const key = segment === "start" ? "padding start" : behind === LEAF.METADATA ? "padding metadata" : "padding body";
      return { key, label: "padding", p };
    }
    const key = { 0: "magic", 1: "continuation", 2: "length", 3: segment === "footer" ? "footer metadata" : "metadata", 6: "body", 7: "footer length", 8: "unclaimed", 9: "unread" }[kind];
    const label = { 0: "magic string", 1: "continuation", 2: "length", 3: "metadata", 6: "body", 7: "length of the footer", 8: "claimed by nothing", 9: "cannot be read" }[kind];
    return { key, label, p };
  }
  function bufferFacts(p, slot) {
    const plan = planOf(p), isExtra = slot < 0;
    const [field, role, element] = plan.slots[isExtra ? ~slot : slot];
    const type = plan.fields[field][2], isTensor = segmentOf(p).includes("tensor");
    let key = role;
    if (isExtra) key = "data of views";
    else if (isTensor && role === "indices") key = "tensor indices";
    else if (role === "offsets") key = type.includes("list_view") ? "offsets of a list view" : type.includes("union") ? "offsets of a union" : "offsets";
    else if (role === "data") key = element === "bit" ? "data bits" : element === "" ? "data bytes" : "data";
    const label = isExtra ? "data" : role.startsWith("validity") ? "validity" : role === "data" ? "values" : role;
    return { key, label, p, plan, field, role: isExtra ? "data" : role, element: isExtra ? "" : element, type, path: fieldPath(plan, field) };
  }
  function titleOf(level, i) {
    if (level === WHOLE) return D.name;
    if (level === PART) return partTitle(i, false);
    if (level === GROUP) return groupTitle(i);
    const facts = leafFacts(i);
    return facts.path ? facts.label + " of " + facts.path : facts.label;
  }

  // Colours

  let ink = {};
  function readColours() {
    const style = getComputedStyle(root), take = (name) => style.getPropertyValue("--" + name).trim();
    ink = { cats: CATS.map((name) => take("c-" + name.replaceAll(" ", "-"))), font: take("sans") };
    for (const name of ["card", "ink", "quiet", "line", "line-strong", "accent", "tint-a", "tint-b", "on-tint", "on-role", "c-schema", "c-footer", "c-dictionary", "c-unread", "c-framing", "c-unclaimed", "alarm"]) ink[name] = take(name);
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
  const partColour = (p) => {
    const kind = segmentOf(p);
    return { schema: ink["c-schema"], footer: ink["c-footer"], "dictionary batch": ink["c-dictionary"], unread: ink["c-unread"], unclaimed: ink["c-unclaimed"], start: ink["c-framing"], "end of stream": ink["c-framing"] }[kind] ?? null;
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
  let view = [0, start[N]], chosen = [WHOLE, 0], hover = null, lit = null, isOverviewOld = true, pending = false;
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

  /** Whether a leaf is dimmed because something else is lit. */
  function isDim(leaf) {
    if (lit === null) return false;
    if (lit.cat !== undefined) return cat[leaf] !== lit.cat;
    const p = partOf[leaf], plan = planOf(p), column = groupColumn[groupOfLeaf(leaf)];
    if (!plan || column < 0) return true;
    return plan.dictionary === null ? column !== lit.column : !(D.dictionaries[plan.dictionary] ?? []).includes(lit.column);
  }

  let hatchesOf = null, hatches = {};
  const HATCHED = new Set([CAT.padding, CAT.unread, CAT.unclaimed]);
  /** What is no data is hatched, so that colour is not all that tells it apart. */
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
      bins[(px * CATS.length + cat[i]) * 2 + (lit !== null && isDim(i) ? 1 : 0)] += w;
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
          const v = bins[px * CATS.length * 2 + k];
          if (!v) continue;
          const h = v * scaleY, c = k >> 1;
          pen.globalAlpha = k & 1 ? 0.13 : 1;
          pen.fillStyle = ink.cats[c];
          pen.fillRect(px, y - h, 1, h);
          y -= h;
        }
      }
      pen.globalAlpha = 1;
    }
    return [thin, merged];
  }

  /** Write the first of several wordings that fits, or the last one cut short. */
  function label(pen, wordings, left, right, y, colour) {
    left = Math.max(left, 0) + 6;
    const room = right - left - 5;
    if (room < 12) return;
    let text = wordings.find((wording) => pen.measureText(wording).width <= room) ?? wordings.at(-1);
    if (pen.measureText(text).width > room) {
      let low = 0, high = text.length;
      while (low < high) {
        const mid = (low + high + 1) >> 1;
        if (pen.measureText(text.slice(0, mid) + "…").width <= room) low = mid;
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
    const edge = level === PART ? (i) => axis[partFirst[i]] : (i) => axis[groupFirst[i]];
    let i = itemAt(level, below(axis, a, N)), run = null, thin = 0;
    pen.font = (level === PART ? "600 13px " : "13px ") + ink.font;
    const close = () => {
      if (run === null) return;
      pen.fillStyle = ink["tint-a"];
      pen.fillRect(run[0], top, Math.max(run[1] - run[0], 1), height);
      if (run[2] > 1) {
        const what = level === PART ? number(run[2]) + " messages, too narrow here to be told apart" : number(run[2]) + " headers and columns";
        label(pen, [what], run[0], Math.min(run[1], width), top + height / 2 + 5, ink.quiet);
      }
      run = null;
    };
    for (; i < count[level] && edge(i) < b; i++) {
      const x0 = (edge(i) - a) * scale, x1 = (edge(i + 1) - a) * scale, w = x1 - x0;
      if (w < 2.5) {
        thin++;
        if (run) { run[1] = x1; run[2]++; }
        else run = [x0, x1, 1];
        if (level === PART && segmentOf(i) === "unread") { close(); pen.fillStyle = ink["c-unread"]; pen.fillRect(x0, top, 2, height); }
        continue;
      }
      close();
      const left = Math.max(x0, -4), right = Math.min(x1, width + 4);
      const own = level === PART ? partColour(i) : null;
      const isHeader = level === GROUP && groupColumn[i] < 0;
      pen.globalAlpha = lit !== null && level === GROUP && isDim(groupFirst[i]) ? 0.35 : 1;
      pen.fillStyle = own ?? (isHeader ? ink["tint-b"] : level === PART ? (A.part_number[i] % 2 ? ink["tint-b"] : ink["tint-a"]) : ink["tint-a"]);
      pen.fillRect(left, top, Math.max(right - left - (w > 4 ? 1 : 0), 1), height);
      if (w > 24) label(pen, level === PART ? [partTitle(i, false), partTitle(i, true), ...(A.part_rows[i] >= 0 ? [number(A.part_number[i])] : [])] : [groupTitle(i)], left, right, top + height / 2 + 5, own ? ink["on-role"] : isHeader ? ink.quiet : ink["on-tint"]);
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
    const thinParts = paintRow(pen, width, PART), thinGroups = paintRow(pen, width, GROUP);
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
    for (const [at] of D.damages) {
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
    outline(pen, width, chosen, ink.accent, 3);
    paintOverview();
    const notes = [];
    if (lit?.column !== undefined) notes.push("Only the column " + (D.columns[lit.column] || "without a name") + " is lit; press its name again, or Esc on the map, to light all.");
    if (merged) notes.push(number(merged) + (merged === 1 ? " part is" : " parts are") + " narrower than a pixel: where they lie, each upright line shows what it is made of, by share. Zoom in to see them apart.");
    else if (thinParts || thinGroups) notes.push("What is too narrow to be told apart is drawn in one piece: zoom in.");
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

  // Moving

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
      const room = Math.max(((b - a) * width) / 60, 1e-9), middle = (a + b) / 2;
      moveTo([middle - room / 2, middle + room / 2], true);
    } else if (a < v0 || b > v1) {
      const span = Math.max(v1 - v0, (b - a) * 1.1), middle = (a + b) / 2;
      moveTo([middle - span / 2, middle + span / 2], true);
    }
  }

  // Choosing

  function nameOf([level, i]) {
    const names = [];
    if (level >= PART) names.push(partTitle(itemAt(PART, firstLeaf(level, i)), false));
    if (level >= GROUP) names.push(groupTitle(itemAt(GROUP, firstLeaf(level, i))));
    if (level === LEAFS) names.push(leafFacts(i).label);
    const a = startOf(level, i), b = stopOf(level, i);
    return (names.join(" › ") || D.name) + "  ·  bytes " + number(a) + " to " + number(b - 1) + " (" + human(b - a) + ")";
  }
  function choose(item, shouldReveal = true) {
    chosen = item;
    if (shouldReveal) reveal(item);
    hexBytes = chart.clientWidth < 560 ? 96 : 256;
    showDetail();
    $("status").textContent = nameOf(item);
    draw();
  }
  function step(by) {
    const [level, i] = chosen;
    if (level === WHOLE) return;
    choose([level, Math.min(Math.max(i + by, 0), count[level] - 1)]);
  }
  function goIn() {
    const [level, i] = chosen;
    if (level === LEAFS || !N) return;
    choose(level === WHOLE ? [PART, 0] : [level + 1, itemAt(level + 1, firstLeaf(level, i))]);
  }
  function goOut() {
    const [level, i] = chosen;
    if (level === WHOLE) return;
    choose([level - 1, itemAt(level - 1, firstLeaf(level, i))]);
  }
  function chooseByte(byte) {
    const leaf = leafAtByte(Math.min(Math.max(byte, 0), Math.max(start[N] - 1, 0)));
    choose([LEAFS, leaf]);
  }

  // The panel

  function make(tag, attributes = {}, ...inside) {
    const made = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
      if (name === "click") made.addEventListener("click", value);
      else if (name === "colour") made.style.background = value;
      else if (name === "ink") made.style.color = value;
      else made.setAttribute(name, value);
    }
    made.append(...inside.filter((item) => item !== null));
    return made;
  }
  const swatch = (c) => make("span", { class: "swatch", "aria-hidden": "true", colour: "var(--c-" + CATS[c].replaceAll(" ", "-") + ")" });

  function meaningKey([level, i]) {
    if (level === WHOLE) return D.format;
    if (level === PART) return segmentOf(i);
    if (level === LEAFS) return leafFacts(i).key;
    const column = groupColumn[i], p = partOf[groupFirst[i]];
    if (column === NO_COLUMN) return "body";
    if (column !== METADATA) return planOf(p).dictionary === null ? "column" : "dictionary values";
    return ["start", "footer", "end of stream", "unread", "unclaimed"].includes(segmentOf(p)) ? segmentOf(p) : "metadata group";
  }

  function nodeOf(p, field) {
    if (field >= A.part_nodes[p]) return null;
    const at = (nodeFirst[p] + field) * 2;
    return { length: A.nodes[at], nulls: A.nodes[at + 1] };
  }
  const codecOf = (p) => (A.part_codec[p] < 0 ? null : ["LZ4", "Zstandard"][A.part_codec[p]]);

  function factsOf([level, i]) {
    const out = [], a = startOf(level, i), b = stopOf(level, i);
    if (b > a) out.push(["Bytes", number(a) + " to " + number(b - 1)], ["In hexadecimal", "0x" + a.toString(16) + " to 0x" + (b - 1).toString(16)]);
    out.push(["Length", b - a < 1024 ? bytesText(b - a) : human(b - a) + " (" + bytesText(b - a) + ")"]);
    if (level !== WHOLE) out.push(["Of the whole", share(b - a)]);
    const p = level === WHOLE ? -1 : itemAt(PART, firstLeaf(level, i));
    if (level === PART && A.part_rows[p] >= 0) {
      out.push([segmentOf(p) === "dictionary batch" ? "Values" : "Rows", number(A.part_rows[p])]);
      out.push(["Buffers", number(A.part_buffers[p])]);
      out.push(["Compression", codecOf(p) ?? "none"]);
      if (A.part_flags[p] & 2) out.push(["Delta", "yes: its values come after those that are there"]);
      if (A.part_flags[p] & 4) out.push(["Framing", "as before format version 0.15"]);
      if (A.part_flags[p] & 8) out.push(["Custom metadata", "yes"]);
      const users = D.dictionaries[String(A.part_dictionary[p])];
      if (users && segmentOf(p) === "dictionary batch") out.push(["Used by", users.slice(0, 12).map((c) => D.columns[c]).join(", ") + (users.length > 12 ? ", …" : "")]);
    }
    if (level === GROUP && groupColumn[i] >= 0) {
      const plan = planOf(p), field = plan.fields.findIndex((f) => f[3] === groupColumn[i]);
      const node = nodeOf(p, field);
      out.push(["Type", plan.fields[field][2]]);
      if (node) out.push(["Slots", number(node.length) + ", " + (node.nulls ? number(node.nulls) + " of them null" : "none of them null")]);
    }
    if (level === LEAFS) {
      const facts = leafFacts(i);
      if (facts.key === "metadata") {
        out.push(["Says", "this is a " + segmentOf(p) + " message"]);
        if (A.part_rows[p] >= 0) out.push(["Rows", number(A.part_rows[p])], ["Body", bytesText(A.part_claimed[p]) + " in " + number(A.part_buffers[p]) + " buffers of " + number(A.part_nodes[p]) + " fields"], ["Compression", codecOf(p) ?? "none"]);
      }
      if (facts.path) {
        const node = nodeOf(p, facts.field);
        out.push(["Column", facts.path], ["Type", facts.type]);
        if (node) out.push(["Slots", number(node.length) + ", " + (node.nulls ? number(node.nulls) + " of them null" : "none of them null")]);
        out.push(["Buffer", "number " + A.leaf_buffer[i] + " of its message"]);
        const from = a - A.part_body[p];
        if (A.part_body[p] >= 0) out.push(["In the body", "from byte " + number(from) + " on"]);
        if (codecOf(p)) out.push(["Compression", codecOf(p)]);
      }
    }
    return out;
  }

  function warningsOf([level, i]) {
    const a = startOf(level, i), b = stopOf(level, i), out = [];
    for (const [at, message] of D.damages) if (level !== WHOLE && at >= a && (at < b || (b === start[N] && at === b))) out.push("At byte " + number(at) + ": " + message);
    if (level === WHOLE) return out;
    const p = itemAt(PART, firstLeaf(level, i));
    if (level === PART && !(A.part_flags[p] & 1)) out.push("The footer does not list this message: readers of the file never see it.");
    const shared = level === LEAFS && A.leaf_kind[i] === LEAF.BUFFER ? D.shared[p]?.[A.leaf_buffer[i]] : null;
    if (shared && shared[1] !== A.leaf_length[i]) out.push("The header gives this buffer " + bytesText(shared[1]) + " from byte " + number(shared[0]) + " of the body on; some of them belong to another buffer, too, or are not there.");
    return out.slice(0, 5);
  }

  function childrenOf([level, i]) {
    const out = [], most = 60;
    if (level === LEAFS) return [out, 0];
    const inner = level + 1, first = itemAt(inner, firstLeaf(level, i));
    const last = N ? itemAt(inner, lastLeaf(level, i) - 1) : -1;
    for (let k = first; k <= last && out.length < most; k++) out.push([inner, k]);
    return [out, Math.max(0, last - first + 1 - out.length)];
  }
  /** The buffers of a column that take no byte: they have no place on the map. */
  function emptyBuffers(g) {
    const p = partOf[groupFirst[g]], slots = slotsOf(p), plan = planOf(p);
    if (!slots || groupColumn[g] < 0) return [];
    const there = new Set();
    for (let leaf = groupFirst[g]; leaf < groupFirst[g + 1]; leaf++) there.add(A.leaf_buffer[leaf]);
    const out = [];
    for (let n = 0; n < slots.length && out.length < 40; n++) {
      const slot = slots[n];
      if (!there.has(n) && plan.columnOf[slot < 0 ? ~slot : slot] === groupColumn[g]) out.push(bufferFacts(p, slot));
    }
    return out;
  }

  const detail = $("detail");
  let hexBytes = 256, localFile = null, shown = 0;

  async function showDetail() {
    const item = chosen, [level, i] = item, turn = ++shown;
    const [title, text, headings] = D.words[meaningKey(item)];
    const crumbs = make("nav", { class: "crumbs", "aria-label": "Where it is" });
    for (let up = WHOLE; up < level; up++) {
      const above = [up, itemAt(up, firstLeaf(level, i))];
      crumbs.append(make("button", { type: "button", click: () => choose(above) }, up === WHOLE ? "whole " + D.format : titleOf(...above)), make("span", { "aria-hidden": "true" }, "›"));
    }
    crumbs.append(make("span", {}, level === WHOLE ? "whole " + D.format : level === LEAFS ? leafFacts(i).label : titleOf(level, i)));

    const left = make("div", {}), right = make("div", {});
    const heading = level === WHOLE ? title : level === LEAFS ? title : titleOf(level, i);
    left.append(make("h2", {}, level === LEAFS ? swatch(cat[i]) : null, heading));
    left.append(make("p", { class: "meaning" }, text));
    const source = make("p", { class: "source" }, "Arrow Columnar Format, ");
    headings.forEach(([name, link], n) => {
      if (n) source.append(", ");
      source.append(make("a", { href: link, rel: "noreferrer noopener", target: "_blank" }, "«" + name + "»"));
    });
    left.append(source);
    for (const warning of warningsOf(item)) left.append(make("p", { class: "warn" }, warning));
    const what = make("dl", { class: "what" });
    for (const [name, value] of factsOf(item)) what.append(make("dt", {}, name), make("dd", {}, value));
    left.append(what);

    const [children, more] = childrenOf(item);
    if (children.length) {
      right.append(make("h3", {}, level === WHOLE ? "In it, in order" : level === PART ? "In this message" : "Its parts"));
      const list = make("ul", { class: "parts" });
      for (const child of children) {
        const [l, k] = child, facts = l === LEAFS ? leafFacts(k) : null;
        const name = l === LEAFS && facts.plan ? facts.label + (facts.plan.fields[facts.field][1] >= 0 ? " of " + facts.path : "") : titleOf(l, k);
        list.append(make("li", {}, l === LEAFS ? swatch(cat[k]) : make("span"), make("button", { type: "button", class: "link", click: () => choose(child) }, name), make("span", { class: "size" }, human(stopOf(l, k) - startOf(l, k)))));
      }
      if (level === GROUP) for (const facts of emptyBuffers(i)) list.append(make("li", { class: "quiet" }, make("span"), make("span", {}, facts.label + (facts.plan.fields[facts.field][1] >= 0 ? " of " + facts.path : "") + (facts.role.startsWith("validity") ? ": left out, as nothing is null" : ": empty")), make("span", { class: "size" }, "0 bytes")));
      right.append(list);
      if (more) right.append(make("p", { class: "under" }, "… and " + number(more) + " more, on the map"));
    }
    if (level !== WHOLE) right.append(...(await bytesOf(item)));
    if (turn !== shown) return;
    detail.replaceChildren(crumbs, left, right);
  }

  // Bytes and values

  function embedded(from, most) {
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
    const held = embedded(from, most);
    if (held.length >= most || !localFile) return held;
    return new Uint8Array(await localFile.slice(from, from + most).arrayBuffer());
  }

  async function bytesOf([level, i]) {
    const a = startOf(level, i), size = stopOf(level, i) - a, wanted = Math.min(size, hexBytes);
    let bytes;
    try {
      bytes = await read(a, wanted);
    } catch (error) {
      bytes = embedded(a, wanted);
    }
    const out = [];
    if (level === LEAFS && bytes.length) out.push(...valuesOf(i, bytes, size));
    out.push(make("h3", {}, "Bytes"));
    if (bytes.length) out.push(hexDump(bytes, a));
    const under = make("p", { class: "under" });
    if (bytes.length < size) under.append(bytes.length ? "The first " + number(bytes.length) + " of " + bytesText(size) + "." : "This page does not carry these " + bytesText(size) + ".");
    if (bytes.length >= wanted && wanted < size && wanted < 8192) under.append(make("button", { type: "button", click: () => { hexBytes *= 4; showDetail(); } }, "Show more"));
    else if (bytes.length < wanted && !localFile) {
      const input = make("input", { type: "file", class: "hidden", "aria-label": "The file that this page is about" });
      input.addEventListener("change", () => {
        const file = input.files[0];
        if (file && file.size !== D.total) {
          alarm.textContent = "That file has " + bytesText(file.size) + "; this page is about one of " + bytesText(D.total) + ".";
        } else if (file) {
          localFile = file;
          showDetail();
        }
      });
      const alarm = make("span", { role: "alert" });
      under.append(make("label", { class: "button" }, bytes.length ? "Read the rest from the file …" : "Read them from the file …", input), alarm);
    }
    if (under.childNodes.length) out.push(under);
    return out;
  }

  function hexDump(bytes, from) {
    const dump = make("pre", { class: "hex", tabindex: "0", "aria-label": "bytes in hexadecimal" });
    const digits = Math.max(4, (from + bytes.length).toString(16).length);
    const per = detail.clientWidth < 560 ? 8 : 16;
    let leaf = leafAtByte(from);
    for (let row = 0; row < bytes.length; row += per) {
      dump.append(make("span", { class: "at" }, (from + row).toString(16).padStart(digits, "0") + "  "));
      let run = "", runCat = -1;
      const close = () => {
        if (run) dump.append(make("b", { ink: ink.cats[runCat] }, run));
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
      dump.append(make("span", { class: "text" }, " " + text + "\n"));
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
  function moment(raw, unit) {
    const ticks = TICKS[unit], value = BigInt(raw);
    let seconds = value / ticks, rest = value % ticks;
    if (rest < 0n) { rest += ticks; seconds -= 1n; }
    const date = new Date(Number(seconds) * 1000);
    if (isNaN(date)) return String(raw);
    const places = String(ticks).length - 1;
    return date.toISOString().slice(0, 19).replace("T", " ") + (places ? "." + String(rest).padStart(places, "0") : "");
  }
  function pointed(value, scale) {
    const digits = (value < 0n ? -value : value).toString().padStart(scale + 1, "0");
    const text = scale > 0 ? digits.slice(0, -scale) + "." + digits.slice(-scale) : digits + "0".repeat(-scale);
    return (value < 0n ? "-" : "") + text;
  }
  /** A value in words, by what the type is called. */
  function worded(raw, type) {
    let found;
    if ((found = type.match(/^timestamp\[(s|ms|us|ns)(?:, tz=(.*))?\]/))) return moment(raw, found[1]) + (found[2] ? " UTC" : "");
    if (type === "date32[day]") return moment(BigInt(raw) * 86400n, "s").slice(0, 10);
    if (type === "date64[ms]") return moment(raw, "ms").slice(0, 10);
    if ((found = type.match(/^time(?:32|64)\[(s|ms|us|ns)\]/))) return moment(raw, found[1]).slice(11) || String(raw);
    if ((found = type.match(/^duration\[(s|ms|us|ns)\]/))) return raw + " " + found[1];
    return String(raw);
  }
  const hexText = (bytes) => Array.from(bytes, (b) => b.toString(16).padStart(2, "0")).join("");
  const safeText = (text) => text.replace(/[\u0000-\u001f\u007f-\u009f\u200e\u200f\u202a-\u202e\u2066-\u2069]/g, (c) => "\\u" + c.charCodeAt(0).toString(16).padStart(4, "0"));

  function valuesOf(leaf, bytes, size) {
    const kind = A.leaf_kind[leaf], view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
    const list = (items) => {
      const made = make("ul", { class: "values" });
      for (const [index, value, isNull] of items) made.append(make("li", isNull ? { class: "null" } : {}, index === null ? null : make("i", {}, String(index)), value));
      return made;
    };
    if ((kind === LEAF.LENGTH || kind === LEAF.FOOTER_LENGTH) && bytes.length >= 4) return [make("h3", {}, "Value"), list([[null, number(view.getInt32(0, true)) + " bytes"]])];
    if (kind !== LEAF.BUFFER) return [];
    const facts = leafFacts(leaf);
    if (!facts.plan || segmentOf(facts.p).includes("tensor")) return [];
    if (codecOf(facts.p)) {
      if (bytes.length < 8) return [];
      const claim = view.getBigInt64(0, true);
      const [, text] = D.words.compressed;
      const stored = claim === -1n ? "-1: stored as it is, " + bytesText(size - 8) : number(Number(claim)) + " bytes come out of " + number(size - 8) + " (" + codecOf(facts.p) + ")";
      return [make("h3", {}, "Compressed"), make("p", { class: "quiet" }, text), list([["length", stored]])];
    }
    const little = !D.big, node = nodeOf(facts.p, facts.field), slots = node ? node.length : Infinity;
    const { element, type, role } = facts, items = [];
    const title = make("h3", {}, role === "validity" ? "Which slots hold a value" : "Values");
    if (element === "bit") {
      for (let j = 0; j < Math.min(slots, bytes.length * 8, 96); j++) {
        const bit = (bytes[j >> 3] >> (j & 7)) & 1;
        items.push([j, role.startsWith("validity") ? (bit ? "valid" : "null") : bit ? "true" : "false", role.startsWith("validity") && !bit]);
      }
    } else if (element === "") {
      const isText = /string|utf8|json/.test(type);
      if (!isText) return [];
      let end = bytes.length;
      if (end < size) while (end > 0 && end > bytes.length - 4 && (bytes[end - 1] & 192) === 128) end--;
      if (end < size && end > 0 && bytes[end - 1] > 191) end--;
      return [make("h3", {}, "As text"), make("p", { class: "string" }, safeText(new TextDecoder().decode(bytes.subarray(0, Math.min(end, 1024)))) + (end < size ? " …" : ""))];
    } else if (role === "views") {
      for (let j = 0; (j + 1) * 16 <= bytes.length && j < Math.min(slots, 32); j++) {
        const length = view.getInt32(j * 16, little), isText = type.includes("string");
        const shownAs = (from, to) => (isText ? "“" + safeText(new TextDecoder().decode(bytes.subarray(from, to))) + "”" : hexText(bytes.subarray(from, to)));
        const value = length <= 12 ? shownAs(j * 16 + 4, j * 16 + 4 + Math.max(length, 0)) : shownAs(j * 16 + 4, j * 16 + 8) + "… " + length + " bytes in data buffer " + view.getInt32(j * 16 + 8, little) + " at " + view.getInt32(j * 16 + 12, little);
        items.push([j, value]);
      }
    } else {
      const width = Number(element.slice(1)), form = element[0];
      const extra = role === "offsets" && !type.includes("union") && !type.includes("list_view") ? 1 : 0;
      for (let j = 0; (j + 1) * width <= bytes.length && j < Math.min(slots + extra, 64); j++) {
        const at = j * width, decimal = type.match(/^decimal\d+\((\d+), (-?\d+)\)/);
        let value;
        if (decimal) value = pointed(BigInt(integer(view, at, width, true, little)), Number(decimal[2]));
        else if (form === "i" || form === "u") value = role === "data" ? worded(integer(view, at, width, form === "i", little), type) : String(integer(view, at, width, form === "i", little));
        else if (form === "f") value = String(width === 8 ? view.getFloat64(at, little) : width === 4 ? view.getFloat32(at, little) : half(view.getUint16(at, little)));
        else value = hexText(bytes.subarray(at, at + width));
        items.push([j, value]);
      }
    }
    return items.length ? [title, list(items)] : [];
  }

  // Legend

  function setLit(next) {
    lit = next;
    isOverviewOld = true;
    for (const button of $("legend").children) button.setAttribute("aria-pressed", String(lit !== null && lit.cat === Number(button.dataset.cat)));
    for (const button of document.querySelectorAll("[data-column]")) button.setAttribute("aria-pressed", String(lit !== null && lit.column === Number(button.dataset.column)));
    draw();
  }
  {
    const sums = new Float64Array(CATS.length);
    for (let leaf = 0; leaf < N; leaf++) sums[cat[leaf]] += A.leaf_length[leaf];
    CATS.forEach((name, c) => {
      if (!sums[c]) return;
      const button = make("button", { type: "button", "data-cat": c, "aria-pressed": "false", title: bytesText(sums[c]), click: () => setLit(lit && lit.cat === c ? null : { cat: c }) }, swatch(c), LEGEND[name] ?? name, make("span", { class: "share" }, share(sums[c])));
      $("legend").append(button);
    });
  }

  // Hands

  function itemUnder(event) {
    const box = chart.getBoundingClientRect(), x = event.clientX - box.left, y = event.clientY - box.top;
    const level = y < ROWS[1][0] - 1 ? PART : y < ROWS[2][0] - 1 ? GROUP : LEAFS;
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
    if (drag && !drag.moved) choose(itemUnder(event), false);
    drag = null;
  });
  chart.addEventListener("pointercancel", () => { drag = null; });
  chart.addEventListener("pointerleave", () => {
    hover = null;
    $("status").textContent = nameOf(chosen);
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
    ArrowLeft: () => step(-1), ArrowRight: () => step(1), ArrowDown: goIn, ArrowUp: goOut,
    "+": () => zoom(0.5), "=": () => zoom(0.5), "-": () => zoom(2), Enter: () => fitItem(chosen), 0: () => fitItem([WHOLE, 0]),
    Escape: () => { setLit(null); choose([WHOLE, 0], false); fitItem([WHOLE, 0]); },
    Home: () => choose([Math.max(chosen[0], PART), 0]), End: () => choose([Math.max(chosen[0], PART), count[Math.max(chosen[0], PART)] - 1]),
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
  on("zoom-to", () => fitItem(chosen));
  on("zoom-all", () => fitItem([WHOLE, 0]));
  on("go-in", goIn);
  on("go-out", goOut);
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
    const wanted = Number($("goto-number").value.replace(/[,_\s]/g, "")), kind = $("goto-kind").value;
    if (!Number.isFinite(wanted) || $("goto-number").value.trim() === "") {
      $("status").textContent = "Expected a number.";
      return;
    }
    if (kind === "byte") {
      if (wanted >= 0 && wanted < start[N]) chooseByte(wanted);
      else $("status").textContent = "There is no byte " + number(wanted) + ": the last one is " + number(start[N] - 1) + ".";
      return;
    }
    const kindNumber = D.segments.indexOf("record batch");
    for (let p = 0; p < P; p++) {
      if (A.part_kind[p] === kindNumber && A.part_number[p] === wanted) {
        choose([PART, p], false);
        fitItem([PART, p]);
        return;
      }
    }
    $("status").textContent = "There is no record batch " + number(wanted) + ".";
  });
  for (const button of document.querySelectorAll("[data-byte]")) {
    button.addEventListener("click", () => { chooseByte(Number(button.dataset.byte)); chart.scrollIntoView({ block: "center" }); });
  }
  for (const button of document.querySelectorAll("[data-column]")) {
    button.addEventListener("click", () => {
      const column = Number(button.dataset.column);
      setLit(lit && lit.column === column ? null : { column });
      $("drawing").scrollIntoView({ block: "nearest", behavior: still.matches ? "auto" : "smooth" });
    });
  }
  new ResizeObserver(() => draw()).observe(chart);

  setTheme(theme);
  root.classList.add("ready");
  const asked = location.hash.match(/^#byte=(\d+)$/);
  if (asked && N) chooseByte(Number(asked[1]));
  else choose([WHOLE, 0], false);
  paint();

  // What tests and curious people may ask of the page.
  window.anatomy = {
    parts: P, leaves: N, total: start[N],
    /** Where a byte is on the screen, at the level of parts (0), groups (1) or leaves (2), in pixels of the window. */
    placeOf(byte, level) {
      const box = chart.getBoundingClientRect(), leaf = leafAtByte(byte);
      const a = axis[firstLeaf(level, itemAt(level, leaf))], b = axis[lastLeaf(level, itemAt(level, leaf))];
      const low = Math.max(a, view[0]), high = Math.min(b, view[1]);
      return { x: box.left + (((low + high) / 2 - view[0]) / (view[1] - view[0])) * box.width, y: box.top + ROWS[level][0] + ROWS[level][1] / 2 };
    },
    chooseByte,
  };
})();
