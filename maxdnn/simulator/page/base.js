// What all parts of the page use: the data, elements, numbers, colours.
const {about, simulation, files} = JSON.parse(document.getElementById("data").textContent);

const REASONS = {
  "issued": ["#2f9e6e", "an instruction was issued"],
  "barrier 1": ["#5b6fd6", "waits for barrier 1 of its control code"],
  "barrier 2": ["#7c87e8", "waits for barrier 2 of its control code"],
  "barrier 3": ["#4f9de0", "waits for barrier 3 of its control code"],
  "barrier 4": ["#77b9ee", "waits for barrier 4 of its control code"],
  "barrier 5": ["#8a63c9", "waits for barrier 5 of its control code"],
  "barrier 6": ["#b08be0", "waits for barrier 6 of its control code"],
  "fixed stall": ["#d9b53f", "waits as long as its control code says"],
  "bank conflict": ["#e07b39", "operands come from one register bank"],
  "pipe busy": ["#cf4c46", "unit or memory port is taken"],
  "memory queue": ["#a3324f", "too many memory operations of the warp in flight"],
  "BAR": ["#2aa1a1", "waits for the other warps of its block"],
  "instruction fetch": ["#a9744f", "the instruction is not in the cache"],
  "constant miss": ["#d673ad", "a constant is not in the cache"],
  "block launch": ["#9bb05a", "the block is just being launched"],
  "memory fence": ["#6e7f46", "waits until its stores are done"],
  "mbarrier": ["#8fd6a0", "waits for a phase of an mbarrier"],
  "tensor cores": ["#f5a3d0", "waits for a product or its sums"],
  "no warp": ["#8d98a7", "no warp is resident: begin and tail of the grid"],
};
// No colour means two things on the page: those of reasons, levels and kinds of instructions all differ.
const LEVELS = {
  "FMA": "#37b978", "issue": "#5e6b78", "shared memory": "#ed9f51", "texture": "#9251d3", "L2": "#2a78c6", "DRAM": "#ac2a1d",
  "tensor cores": "#f5a3d0",
};
const NONE = "–";  // in place of a figure that there is not

const colour = reason => (REASONS[reason] || ["#8d98a7"])[0];
const whole = n => Math.round(n).toLocaleString("en-US");
const percent = (n, digits = 2) => n === null || n === undefined ? NONE : n.toFixed(digits);
const sum = list => list.reduce((a, b) => a + b, 0);
const css = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

function bytes(n) {
  const [unit, size] = n < 1e3 ? ["B", 1] : n < 1e6 ? ["kB", 1e3] : n < 1e9 ? ["MB", 1e6] : ["GB", 1e9];
  const value = n / size;
  return (unit === "B" || value >= 100 ? whole(value) : value.toFixed(1)) + " " + unit;
}

function short(n) {
  return n >= 1e12 ? (n / 1e12).toFixed(2) + " T" : n >= 1e9 ? (n / 1e9).toFixed(2) + " G"
    : n >= 1e6 ? (n / 1e6).toFixed(2) + " M" : n >= 1e4 ? (n / 1e3).toFixed(1) + " k"
    : n >= 100 ? whole(n) : String(+n.toPrecision(3));
}

function put(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value !== null && value !== undefined && value !== false) node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat(Infinity).filter(c => c !== null && c !== undefined));
  return node;
}
const h = (tag, attributes, ...children) => put(document.createElement(tag), attributes, children);
const s = (tag, attributes, ...children) =>
  put(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);

// A table: columns are [title, kinds or ""], rows are lists of cells (text or element). Kinds: "left"; "mono"; "wide", at the
// end, which on a narrow screen stand below the others, in lines of their own.
function table(id, columns, rows, attributes = () => ({})) {
  const cell = (value, i) => h("td", columns[i][1] ? {class: columns[i][1]} : {}, value === "" ? NONE : value);
  const plain = columns.filter(([, kind]) => !/wide/.test(kind || "")).length;
  return h("div", {class: "scroll"}, h("table", {id, class: plain < columns.length ? "cards" : null, style: `--plain:${plain - 1}`},
    h("thead", {}, h("tr", {}, columns.map(([title, kind]) => h("th", kind ? {class: kind} : {}, title)))),
    h("tbody", {}, rows.map((row, i) => h("tr", attributes(i), row.map(cell))))));
}

// A bar whose pieces are [share of the whole, colour, what it is].
const bar = pieces => h("div", {class: "track"}, pieces.map(([share, fill, title]) =>
  h("i", {style: `width:${Math.max(0, 100 * share)}%;background:${fill}`, title})));

const tip = document.getElementById("tip");
function showTip(text, x, y) {
  tip.textContent = text;
  tip.hidden = !text;
  if (!text) return;
  const box = tip.getBoundingClientRect();
  tip.style.left = Math.max(4, Math.min(x + 14, innerWidth - box.width - 4)) + "px";
  tip.style.top = (y + 18 + box.height > innerHeight ? Math.max(4, y - box.height - 10) : y + 18) + "px";
}
