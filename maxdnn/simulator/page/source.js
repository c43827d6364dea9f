// The source, or the instructions, with what was lost in front of each line. Sorted by any column, in pieces of a few
// hundred rows, so that a long kernel does not stop the browser.
const PIECE = 600;

class Listing {
  // columns: {key, title, kind, value(row) to sort by, cell(row)}; the first is the order of the code.
  constructor(id, columns, rows) {
    Object.assign(this, {columns, rows, key: columns[0].key, down: false, shown: PIECE});
    this.body = h("tbody");
    this.heads = columns.map(c => h("th", {class: c.kind, scope: "col"}, h("button", {type: "button", onclick: () => this.sort(c.key)}, c.title)));
    this.more = h("button", {class: "b", type: "button", onclick: () => { this.shown += 4 * PIECE; this.draw(); }}, "more lines");
    this.box = h("div", {class: "listing"}, h("table", {id}, h("thead", {}, h("tr", {}, this.heads)), this.body));
    this.node = h("div", {}, this.box, h("p", {}, this.more));
    rows.forEach((row, i) => { row.order = i; });
    this.draw();
  }

  sort(key, down) {
    this.down = down ?? (key === this.key ? !this.down : key !== this.columns[0].key);
    this.key = key;
    this.shown = PIECE;
    this.draw();
    this.box.scrollTop = 0;
  }

  draw() {
    const {value} = this.columns.find(c => c.key === this.key), way = this.down ? -1 : 1;
    const compare = (a, b) => { const x = value(a), y = value(b); return (x < y ? -way : x > y ? way : 0) || a.order - b.order; };
    this.sorted = [...this.rows].sort(compare);
    this.columns.forEach((c, i) => c.key === this.key
      ? this.heads[i].setAttribute("aria-sort", this.down ? "descending" : "ascending") : this.heads[i].removeAttribute("aria-sort"));
    this.body.replaceChildren(...this.sorted.slice(0, this.shown).map(row =>
      h("tr", {"data-row": row.order}, this.columns.map(c => h("td", {class: c.kind}, c.cell(row))))));
    this.more.hidden = this.shown >= this.rows.length;
    this.more.textContent = `show more (${whole(Math.min(this.shown, this.rows.length))} of ${whole(this.rows.length)})`;
  }

  // In the order of the code, with that row in the middle and marked.
  jump(row) {
    if (!row) return false;
    this.key = this.columns[0].key;
    this.down = false;
    this.shown = Math.max(this.shown, row.order + PIECE);
    this.draw();
    for (const marked of this.body.querySelectorAll(".hit")) marked.classList.remove("hit");
    const line = this.body.querySelector(`[data-row="${row.order}"]`);
    line.classList.add("hit");
    this.box.scrollTop = line.offsetTop - this.box.clientHeight / 2;
    return true;
  }
}

function lossColumns(launch, rows) {
  const most = Math.max(1, ...rows.map(r => r.loss)), share = n => 100 * n / launch.slots;
  const byReason = row => Object.entries(row.lost).sort((a, b) => b[1] - a[1]);
  const loss = row => row.issued === undefined ? -1 : row.loss;
  const number = (n, row) => row.issued === undefined ? "" : percent(n, 3);
  return [
    {key: "issued", title: "issued %", kind: "", value: r => r.issued === undefined ? -1 : r.issued - r.second,
      cell: r => number(share(r.issued - r.second), r)},
    {key: "lost", title: "lost %", kind: "", value: loss, cell: r => number(share(r.loss), r)},
    {key: "bar", title: "lost to", kind: "left", value: loss, cell: r => r.loss
      ? bar(byReason(r).map(([name, n]) => [n / most, colour(name), `${name}: ${percent(share(n), 3)} % of all slots`])) : ""},
    {key: "mostly", title: "mostly", kind: "mostly left", value: r => r.loss ? byReason(r)[0][0] : "~",
      cell: r => r.loss ? byReason(r)[0][0] : r.issued === undefined ? "" : NONE}];
}

function fileRows(launch, name) {
  const at = new Map(launch.source_lines.map(line => [line.place, line]));
  return files[name].split(/\r?\n/).map((text, i) => {
    const line = at.get(`${name}:${i + 1}`);
    return {file: name, line: i + 1, text, lost: {}, ...line, loss: line ? sum(Object.values(line.lost)) : 0};
  });
}

class SourceSection {
  constructor(launch) {
    this.launch = launch;
    this.names = launch.source_lines ? [...new Set(launch.source_lines.map(l => l.place.replace(/:\d+$/, "")))].filter(n => n in files) : [];
    this.view = this.names.length ? this.names[0] : "instructions";
    this.place = h("div");
    this.buttons = ["instructions", ...this.names].map(name =>
      h("button", {class: "b", type: "button", "data-view": name, onclick: () => this.show(name)}, name));
    this.find = h("input", {id: "jump", type: "search", placeholder: "line, address or text", "aria-label": "jump to",
      onkeydown: e => { if (e.key === "Enter") this.search(e.target.value.trim()); }});
    this.node = h("section", {id: "source"}, h("h2", {}, "Source"),
      h("p", {class: "note"}, "Slots issued and lost, in percent of all issue slots of the launch; a slot is lost in front of the "
        + "instruction that waits. Click a column to sort by it, a place to go to it."
        + (this.names.length ? " What a block of embedded code wrote counts for the line it begins on." : "")),
      about.missing ? h("p", {class: "note", id: "missing"}, about.missing) : null,
      h("div", {class: "bar"}, this.buttons.length > 1 ? this.buttons : []),
      h("div", {class: "bar"},
        h("button", {class: "b", type: "button", id: "worst", onclick: () => this.listing.sort("lost", true)}, "worst first"),
        h("button", {class: "b", type: "button", id: "ordered", onclick: () => this.listing.sort(this.listing.columns[0].key, false)}, "in order"),
        this.find, h("span", {class: "soft"}, "Enter: next")),
      this.worst(), this.place);
    this.show(this.view);
  }

  show(view) {
    this.view = view;
    for (const b of this.buttons) b.setAttribute("aria-pressed", b.dataset.view === view);
    this.listing = view === "instructions" ? this.instructions() : this.file(view);
    this.place.replaceChildren(this.listing.node);
  }

  instructions() {
    const rows = this.launch.instructions.map(r => ({...r, loss: sum(Object.values(r.lost))}));
    const place = {key: "place", title: "from", kind: "left mono", value: r => r.order,
      cell: r => h("a", {class: "jump", onclick: () => this.goto(r.place)}, r.place)};
    return new Listing("instructions-table", [
      {key: "address", title: "address", kind: "left mono", value: r => r.address, cell: r => "0x" + r.address.toString(16).padStart(4, "0")},
      ...lossColumns(this.launch, rows), ...(this.names.length ? [place] : []),
      {key: "text", title: "instruction", kind: "code mono", value: r => r.text, cell: r => r.source || `${r.control}  ${r.text}`}], rows);
  }

  file(name) {
    const rows = fileRows(this.launch, name);
    return new Listing("source-table", [
      {key: "line", title: "line", kind: "left mono", value: r => r.line, cell: r => String(r.line)},
      {key: "count", title: "instr.", kind: "", value: r => r.instructions || 0, cell: r => r.instructions ? whole(r.instructions) : ""},
      ...lossColumns(this.launch, rows),
      {key: "text", title: name, kind: "code mono", value: r => r.text, cell: r => r.text || " "}], rows);
  }

  // The lines, or instructions, that cost most: each a way to its place.
  worst() {
    const lines = (this.names.length ? this.launch.source_lines : this.launch.instructions)
      .map(r => ({r, loss: sum(Object.values(r.lost))})).filter(x => x.loss).sort((a, b) => b.loss - a.loss).slice(0, 8);
    return h("p", {id: "costliest"}, "Costliest: ", lines.map(({r, loss}, i) => [i ? ", " : "",
      h("a", {class: "jump", onclick: () => this.goto(this.names.length ? r.place : r.address)},
        this.names.length ? r.place : "0x" + r.address.toString(16).padStart(4, "0")),
      ` ${percent(100 * loss / this.launch.slots)} %`]));
  }

  // To a place ("file:line") or to an instruction (its address).
  goto(where) {
    if (typeof where === "number") {
      if (this.view !== "instructions") this.show("instructions");
      return this.listing.jump(this.listing.rows.find(r => r.address === where));
    }
    const [, name, line] = /^(.*):(\d+)$/.exec(where);
    if (!this.names.includes(name)) return false;
    if (this.view !== name) this.show(name);
    return this.listing.jump(this.listing.rows.find(r => r.line === Number(line)));
  }

  search(text) {
    if (!text) return;
    const rows = this.listing.rows, hit = this.listing.body.querySelector(".hit"), from = hit ? Number(hit.dataset.row) + 1 : 0;
    const wanted = text.toLowerCase(), of = r => (r.source || r.text || "").toLowerCase();
    const found = /^0x[0-9a-f]+$/i.test(text) ? rows.find(r => r.address === Number(text))
      : /^\d+$/.test(text) && this.view !== "instructions" ? rows.find(r => r.line === Number(text))
      : [...rows.slice(from), ...rows.slice(0, from)].find(r => of(r).includes(wanted));
    this.find.setCustomValidity(this.listing.jump(found) ? "" : "not found");
    this.find.reportValidity();
  }
}
