// Issue slots, limits, occupancy, memory, instructions: one section each, for one launch.
const CLASSES = {
  "x32": "32-bit arithmetic", "shift": "shifts, half-rate arithmetic", "cmp": "comparisons", "rro": "range reduction", "vote": "votes",
  "qtr": "special functions, conversions", "s2r": "special registers, bit counts", "imul": "32-bit integer multiplication",
  "x64": "double precision", "smem": "shared memory, shuffles", "mem": "global and local memory", "ldc": "indexed constants",
  "tex": "textures", "sync": "barriers", "flow": "control flow",
};

function executedSection(launch) {
  const rows = Object.entries(launch.executed), all = sum(rows.map(([, n]) => n));
  return h("section", {id: "executed"}, h("h2", {}, "Instructions"),
    h("p", {class: "note"}, `${whole(all)} warp-instructions of the whole grid, by scheduling class.`),
    table("executed-table", [["class", "left"], ["executed"], ["%"], ["", "left"]], rows.map(([name, n]) =>
      [CLASSES[name] || name, whole(n), percent(100 * n / all), bar([[n / all, "var(--accent)", ""]])])));
}

function slotsSection(launch) {
  const rows = Object.entries(launch.slots_percent).filter(([, v]) => v >= 0.005);
  const lost = rows.filter(([name]) => name !== "issued").sort((a, b) => b[1] - a[1]);
  const ordered = [["issued", launch.slots_percent.issued], ...lost];
  return h("section", {id: "slots"}, h("h2", {}, "Issue slots"),
    h("p", {class: "note"}, `Each of the four schedulers of an SM can issue once a clock. ${percent(launch.slots_percent.issued)} % `
      + "of these slots issue; a lost one is charged to the warp that will be first to go on."),
    h("div", {class: "stack"}, ordered.map(([name, v]) =>
      h("i", {style: `width:${v}%;background:${colour(name)}`, title: `${name}: ${percent(v)} %`}))),
    table("slots-table", [["slots", "left"], ["%"], ["", "left wide"]], ordered.map(([name, v]) =>
      [h("span", {}, h("span", {class: "swatch", style: `background:${colour(name)}`}), name), percent(v),
       h("span", {class: "soft"}, (REASONS[name] || ["", ""])[1])])),
    h("p", {class: "note", style: "margin-top:10px"},
      `Issued as second of a pair, in no slot of its own: ${whole(launch.dual_issued)}; pairs that failed: ${whole(launch.failed_pairs)}.`));
}

function occupancySection(launch) {
  const o = launch.occupancy, most = Math.max(...Object.values(o.blocks_by_limit));
  const rows = Object.entries(o.blocks_by_limit).sort((a, b) => a[1] - b[1]);
  return h("section", {id: "occupancy"}, h("h2", {}, "Occupancy"),
    h("p", {class: "note"}, h("b", {}, `${whole(o.blocks_per_sm)} blocks, ${whole(o.warps_per_sm)} warps on an SM (${percent(o.percent, 0)} %), `
      + `limited by ${o.limited_by}. `),
      `A block has ${whole(o.threads)} threads with ${whole(o.registers)} registers each and ${whole(o.shared_bytes)} bytes of shared memory; `
      + `the grid has ${whole(launch.blocks)} blocks.`),
    table("occupancy-table", [["limit", "left"], ["blocks"], ["", "left"]], rows.map(([name, blocks]) =>
      [name, whole(blocks), bar([[blocks / most, name === o.limited_by ? "var(--accent)" : "var(--soft)", ""]])])));
}

function memorySection(launch) {
  const t = launch.traffic_bytes, hits = launch.hit_percent, dram = t["DRAM read"] + t["DRAM written"];
  const most = Math.max(t["texture/L1"], t.L2, dram, 1);
  const moves = n => h("div", {class: "moves"}, bytes(n), h("i", {style: `height:${Math.max(2, 22 * n / most)}px`}));
  const level = (name, note) => h("div", {class: "level"}, h("b", {}, name), h("span", {}, note));
  const hit = v => v === null ? "not used" : percent(v, 1) + " % hits";
  const rate = n => percent(n / launch.clocks, 1);
  const rows = [
    ["texture/L1", bytes(t["texture/L1"]), rate(t["texture/L1"]), percent(launch.limits_percent.texture), percent(hits["texture/L1"])],
    ["L2", bytes(t.L2), rate(t.L2), percent(launch.limits_percent.L2), percent(hits.L2)],
    ["DRAM read", bytes(t["DRAM read"]), rate(t["DRAM read"]), percent(launch.limits_percent.DRAM), NONE],
    ["DRAM written", bytes(t["DRAM written"]), rate(t["DRAM written"]), NONE, NONE],
    ["shared memory", bytes(launch.roofline.memory["shared memory"].bytes), rate(launch.roofline.memory["shared memory"].bytes),
     percent(launch.limits_percent["shared memory"]), NONE],
    ...["constant", "constant L1.5", "instruction"].map(name => [name, NONE, NONE, NONE, percent(hits[name])])];
  return h("section", {id: "memory"}, h("h2", {}, "Memory traffic"),
    h("p", {class: "note"}, "Bytes that the whole chip asks of each level, and how often a level has them."),
    h("div", {class: "flow"}, level("SMs", `${launch.mirrored_sms + launch.simulated_sms}`), moves(t["texture/L1"]),
      level("texture/L1", hit(hits["texture/L1"])), moves(t.L2), level("L2", hit(hits.L2)), moves(dram),
      level("DRAM", percent(launch.dram_percent_of_peak, 1) + " % of peak")),
    table("memory-table", [["level", "left"], ["bytes"], ["bytes a clock"], ["% of peak"], ["hits %"]], rows),
    h("p", {class: "note", style: "margin-top:10px"}, "Global loads pass texture/L1 by, so L2 may move more than it. "
      + "% of peak: of texture/L1 the time its units are busy, of DRAM reads and writes together. Bytes of shared memory: "
      + "what it could have moved while it was busy."));
}

function limitsSection(launch) {
  const limits = Object.entries(launch.limits_percent).sort((a, b) => b[1] - a[1]);
  return h("section", {id: "limits"}, h("h2", {}, "Limits"),
    h("p", {class: "note"}, "How much of each resource the launch uses, and the clocks it would take if nothing but that resource counted."),
    table("limits-table", [["resource", "left"], ["% used"], ["clocks alone"], ["", "left"]], limits.map(([name, v]) =>
      [h("span", {}, h("span", {class: "swatch", style: `background:${LEVELS[name]}`}), name), percent(v), whole(launch.clocks * v / 100),
       bar([[v / 100, LEVELS[name], ""]])])),
    roofline(launch.roofline));
}

// Log-log: operations a byte to the right, operations a clock upwards; a sloped roof for each level of memory.
function roofline(r) {
  const levels = Object.entries(r.memory).filter(([, m]) => m.bytes > 0)
    .map(([name, m]) => ({name, rate: m.bytes_per_clock, x: r.operations / m.bytes}));
  const flats = Object.entries(r.flat).filter(([, v]) => Number.isFinite(v) && v > 0);
  if (!(r.per_clock > 0) || !flats.length) return h("p", {class: "note"}, "Nothing was executed.");
  const top = Math.max(...flats.map(([, v]) => v)), roof = Math.min(...flats.map(([, v]) => v));
  const xs = [...levels.map(l => l.x), ...levels.map(l => roof / l.rate)], log = Math.log10;
  const [x0, x1] = [log(Math.min(...xs, 1)) - 0.35, log(Math.max(...xs, 10)) + 0.35];
  const [y0, y1] = [Math.min(log(r.per_clock), log(roof) - 1.5) - 0.3, log(top) + 0.25];
  const W = innerWidth < 640 ? 350 : 560, H = 330, L = 58, R = 12, T = 10, B = 44;
  const X = v => L + (log(v) - x0) / (x1 - x0) * (W - L - R), Y = v => H - B - (log(v) - y0) / (y1 - y0) * (H - T - B);
  const out = s("svg", {id: "roofline", viewBox: `0 0 ${W} ${H}`, width: "100%", role: "img",
    "aria-label": `roofline: ${short(r.per_clock)} ${r.unit} a clock`});
  for (let e = Math.ceil(x0); e <= x1; e++) out.append(
    s("line", {x1: X(10 ** e), x2: X(10 ** e), y1: T, y2: H - B, stroke: "var(--line)"}),
    s("text", {x: X(10 ** e), y: H - B + 16, "text-anchor": "middle", class: "soft"}, short(10 ** e)));
  for (let e = Math.ceil(y0); e <= y1; e++) out.append(
    s("line", {x1: L, x2: W - R, y1: Y(10 ** e), y2: Y(10 ** e), stroke: "var(--line)"}),
    s("text", {x: L - 6, y: Y(10 ** e) + 4, "text-anchor": "end", class: "soft"}, short(10 ** e)));
  out.append(s("text", {x: (L + W - R) / 2, y: H - 8, "text-anchor": "middle", class: "soft"}, `${r.unit} per byte that the level moves`),
    s("text", {x: 13, y: (T + H - B) / 2, "text-anchor": "middle", class: "soft", transform: `rotate(-90 13 ${(T + H - B) / 2})`},
      `${r.unit} per clock`));
  const left = X(Math.max(10 ** x0, roof / Math.max(...levels.map(l => l.rate), 1)));
  for (const [name, v] of flats) out.append(s("line", {class: "roof", x1: left, x2: W - R, y1: Y(v), y2: Y(v), stroke: LEVELS[name],
    "stroke-width": 2, "stroke-dasharray": name === "issue" ? "5 4" : null}));
  const seen = new Map();
  for (const l of levels) {
    const begin = Math.max(10 ** x0, 10 ** y0 / l.rate), twin = seen.get(l.rate) || 0;
    seen.set(l.rate, twin + 1);
    out.append(s("line", {class: "roof", x1: X(begin), y1: Y(begin * l.rate), x2: X(roof / l.rate), y2: Y(roof), stroke: LEVELS[l.name],
      "stroke-width": 2, "stroke-dasharray": twin ? "6 6" : null}),
      s("line", {x1: X(l.x), x2: X(l.x), y1: Y(r.per_clock), y2: Y(Math.min(roof, l.x * l.rate)), stroke: LEVELS[l.name],
        "stroke-dasharray": "2 3"}));
  }
  for (const l of levels) out.append(s("circle", {cx: X(l.x), cy: Y(r.per_clock), r: 5.5, fill: LEVELS[l.name], stroke: "var(--card)",
    "stroke-width": 1.5}, s("title", {}, `${l.name}: ${short(l.x)} ${r.unit} per byte, at most ${short(l.x * l.rate)} per clock`)));
  // All words stand here or at the axes: in the picture a roof or a point would cross them.
  const key = (name, text) => h("span", {}, h("span", {class: "swatch", style: `background:${LEVELS[name]}`}), `${name}: ${text}`);
  const legend = h("div", {class: "legend"},
    flats.map(([name, v]) => key(name, `${short(v)} a clock${name === "issue" ? " for this mix (dashed)" : ""}`)),
    levels.map(l => key(l.name, `${short(l.rate)} bytes/clock, ${short(l.x)} per byte`)));
  return h("div", {style: "margin-top:14px"}, h("h3", {}, "Roofline"),
    h("p", {class: "note"}, `${short(r.per_clock)} ${r.unit} a clock. Each point stands below the sloped roof of its level; `
      + "the dotted line is how much faster it could be before that level stops it."), out, legend);
}
