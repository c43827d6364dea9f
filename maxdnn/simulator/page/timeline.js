// One SM over time. Above the whole launch, below a part of it that zooms down to single issues.
const GUTTER = 58, AXIS = 22, STRIP = 70;
const KINDS = [
  ["float arithmetic", LEVELS["FMA"], /^[FH](FMA|ADD|MUL|MNMX|SET|CMP|SWZ|CHK)|^MUFU|^RRO|^HFMA2|^HADD2|^HMUL2/],
  ["double precision", "#1d6b51", /^D(FMA|ADD|MUL|MNMX|SET)/],
  ["shared memory", LEVELS["shared memory"], /^(LDS|STS|ATOMS)/],
  ["texture", LEVELS["texture"], /^T(EX|LD|XQ|XA|MML)/],
  ["global and local memory", "#7892c6", /^(LD|ST|ATOM|RED|UBLKCP|LDG|STG|LDL|STL|SULD|SUST|SUATOM|SURED|CCTL)/],
  ["constants", "#c685b9", /^LDC/],
  ["barriers and control", "#d33751", /^(BAR|DEPBAR|MEMBAR|BRA|BRX|JMP|JMX|SSY|SYNC|CAL|RET|EXIT|PBK|BRK|PCNT|CONT|PRET|NOP|KIL|VOTE|SHFL|FENCE|USETMAXREG)/],
  ["tensor cores", LEVELS["tensor cores"], /^(HGMMA|WARPGROUP)/],
  ["other arithmetic", "#e0ac10", /./],
];
const kindOf = text => KINDS.findIndex(([, , pattern], i) => (i !== 4 || !/^LD[CS]/.test(text)) && pattern.test(text));

class TimelineSection {
  constructor(launch, source) {
    Object.assign(this, {launch, source, t: launch.timeline});
    this.end = Math.max(launch.clocks, 1);
    this.kinds = launch.instructions.map(r => kindOf(r.text.replace(/^@!?U?P\S+\s+/, "")));
    this.windows = this.t.windows.map(w => this.unpack(w)).filter(w => w.at.length);
    this.tracks = this.order();
    this.overview = h("canvas", {id: "overview", tabindex: 0, role: "img", "aria-label": "issue slots over the whole launch"});
    this.detail = h("canvas", {id: "detail", tabindex: 0, role: "img", "aria-label": "issues of one SM, zoomed"});
    const press = (id, title, what) => h("button", {class: "b", type: "button", id, onclick: what}, title);
    const names = this.windows.map((w, i) => w.first === 0 ? "begin" : i ? "middle" : "traced cycles");
    this.said = h("span", {class: "soft", id: "timeline-range"});
    this.node = h("section", {id: "timeline"}, h("h2", {}, "Timeline of one SM"), h("p", {class: "note"}, this.limits()),
      h("div", {class: "bar"}, press("zoom-in", "+", () => this.zoom(0.5)), press("zoom-out", "−", () => this.zoom(2)),
        press("earlier", "◀", () => this.pan(-0.5)), press("later", "▶", () => this.pan(0.5)),
        press("zoom-all", "whole launch", () => this.look(0, this.end)),
        this.windows.map((w, i) => press(`window-${i}`, names[i], () => this.look(w.first, w.first + Math.min(600, w.last - w.first)))),
        this.said),
      this.overview, this.detail,
      h("div", {class: "legend"}, KINDS.filter((_, i) => this.kinds.includes(i)).map(([name, fill]) =>
        h("span", {}, h("span", {class: "swatch", style: `background:${fill}`}), name)), h("span", {}, "line behind: until the result is there")),
      h("p", {class: "note", style: "margin-top:8px"}, "Wheel, pinch, + and −: zoom. Drag, ◀ and ▶, arrow keys: move. Click an issue: to its line."));
    this.listen();
    const w = this.windows[this.windows.length - 1] || {first: 0, last: this.end};
    this.from = w.first;
    this.to = Math.min(w.first + 600, Math.max(w.last, w.first + 1));
  }

  limits() {
    const kept = this.windows.map(w => `${whole(w.first)} to ${whole(w.last)}`).join(" and ");
    return `Above, what became of the issue slots during the launch (${whole(this.t.cycle.length)} stretches); below, the part that is chosen. `
      + `Single issues are kept for the cycles ${kept || "of no window"}, of SM 0 alone, which keeps the page small.`;
  }

  unpack(w) {
    const e = w.events;
    let now = w.first;
    const at = e.cycle.map(step => now += step);
    return {first: w.first, last: w.last, at, e};
  }

  // Tracks from above: warps by scheduler (warp w belongs to scheduler w % schedulers).
  order() {
    const place = [];
    let n = 0;
    for (let sch = 0; sch < this.t.schedulers; sch++)
      for (let w = sch; w < this.t.warps; w += this.t.schedulers) place[w] = n++;
    return place;
  }

  get bottom() { return Math.max(...this.tracks.map((_, warp) => this.trackTop(warp))) + this.trackHeight; }

  get trackHeight() { return this.t.warps > 32 ? 9 : this.t.warps > 16 ? 12 : 16; }

  trackTop(warp) { return AXIS + STRIP + 10 + this.tracks[warp] * this.trackHeight + 6 * (warp % this.t.schedulers); }

  look(from, to) {
    const span = Math.min(Math.max(to - from, 8), this.end);
    this.from = Math.min(Math.max(from, 0), this.end - span);
    this.to = this.from + span;
    this.draw();
  }

  zoom(factor, around = (this.from + this.to) / 2) {
    const span = Math.min(Math.max((this.to - this.from) * factor, 8), this.end);
    const share = (around - this.from) / (this.to - this.from);
    this.look(around - share * span, around - share * span + span);
  }

  pan(share) { const by = share * (this.to - this.from); this.look(this.from + by, this.to + by); }

  cycleAt(canvas, clientX, from, to) {
    const box = canvas.getBoundingClientRect();
    return from + (clientX - box.left - GUTTER) / (box.width - GUTTER) * (to - from);
  }

  listen() {
    const c = this.detail, fingers = new Map();
    c.addEventListener("wheel", e => {
      e.preventDefault();
      if (Math.abs(e.deltaX) > Math.abs(e.deltaY)) this.pan(e.deltaX / 800);
      else this.zoom(Math.exp(Math.max(-300, Math.min(300, e.deltaY)) / 400), this.cycleAt(c, e.clientX, this.from, this.to));
    }, {passive: false});
    c.addEventListener("pointerdown", e => { fingers.set(e.pointerId, e.clientX); c.setPointerCapture(e.pointerId); this.moved = 0; c.classList.add("drags"); });
    c.addEventListener("pointermove", e => {
      if (!fingers.has(e.pointerId)) return this.hover(e);
      const before = [...fingers.values()];
      fingers.set(e.pointerId, e.clientX);
      const now = [...fingers.values()], perCycle = (c.clientWidth - GUTTER) / (this.to - this.from);
      this.moved += Math.abs(e.movementX) + Math.abs(e.movementY);
      if (now.length === 1) this.look(this.from - (now[0] - before[0]) / perCycle, this.to - (now[0] - before[0]) / perCycle);
      else this.zoom(Math.abs(before[0] - before[1]) / Math.max(8, Math.abs(now[0] - now[1])), this.cycleAt(c, (now[0] + now[1]) / 2, this.from, this.to));
    });
    const up = e => { fingers.delete(e.pointerId); c.classList.remove("drags"); };
    c.addEventListener("pointerup", e => { up(e); if (this.moved < 4) this.click(e); });
    c.addEventListener("pointercancel", up);
    c.addEventListener("pointerleave", () => showTip(""));
    const toCycle = e => { const at = this.cycleAt(this.overview, e.clientX, 0, this.end), half = (this.to - this.from) / 2; this.look(at - half, at + half); };
    this.overview.addEventListener("pointerdown", e => { this.overview.setPointerCapture(e.pointerId); toCycle(e); });
    this.overview.addEventListener("pointermove", e => { if (e.buttons) toCycle(e); });
    for (const canvas of [c, this.overview]) canvas.addEventListener("keydown", e => {
      const does = {"+": () => this.zoom(0.5), "=": () => this.zoom(0.5), "-": () => this.zoom(2), "ArrowLeft": () => this.pan(-0.2),
        "ArrowRight": () => this.pan(0.2), "0": () => this.look(0, this.end)}[e.key];
      if (does) { e.preventDefault(); does(); }
    });
  }

  // The issue under a pointer: (window, number), or null.
  under(e) {
    const box = this.detail.getBoundingClientRect(), y = e.clientY - box.top, at = this.cycleAt(this.detail, e.clientX, this.from, this.to);
    const near = Math.max(0.5, 4 * (this.to - this.from) / (box.width - GUTTER));
    let best = null;
    for (const w of this.windows) {
      for (let i = this.lower(w, at - near - 1); i < w.at.length && w.at[i] <= at + near; i++) {
        const top = this.trackTop(w.e.warp[i]);
        if (y < top || y >= top + this.trackHeight) continue;
        const off = Math.abs(w.at[i] + 0.5 - at);
        if (off <= near + 0.5 && (!best || off < best.off)) best = {w, i, off};
      }
    }
    return best;
  }

  hover(e) {
    const found = this.under(e);
    if (!found) return showTip("");
    const {w, i} = found, r = this.launch.instructions[w.e.instruction[i]];
    showTip(`${r.source || r.control + "  " + r.text}\n0x${r.address.toString(16).padStart(4, "0")}${r.place ? ", " + r.place : ""}\n`
      + `cycle ${whole(w.at[i])}, warp ${w.e.warp[i]} of scheduler ${w.e.warp[i] % this.t.schedulers}, block ${whole(w.e.block[i])}`
      + `${w.e.second[i] ? ", second of a pair" : ""}\nresult after ${whole(w.e.there[i])} cycles, operands read after ${whole(w.e.read[i])}`,
      e.clientX, e.clientY);
  }

  click(e) {
    const found = this.under(e);
    if (!found) return;
    const r = this.launch.instructions[found.w.e.instruction[found.i]];
    this.source.goto(r.place && this.source.names.length ? r.place : r.address);
    this.source.node.scrollIntoView();
  }

  lower(w, cycle) {
    let low = 0, high = w.at.length;
    while (low < high) { const mid = low + high >> 1; if (w.at[mid] < cycle) low = mid + 1; else high = mid; }
    return low;
  }

  draw() {
    this.prepare(this.overview, AXIS + STRIP + 4);
    this.prepare(this.detail, this.bottom + 24);
    this.drawOverview();
    this.drawDetail();
    this.detail.dataset.from = this.from;
    this.detail.dataset.to = this.to;
    this.said.textContent = `cycles ${whole(this.from)} to ${whole(this.to)} of ${whole(this.end)}`;
  }

  prepare(canvas, height) {
    const ratio = Math.min(devicePixelRatio || 1, 2), width = canvas.parentNode ? canvas.clientWidth || 800 : 800;
    canvas.style.height = height + "px";
    canvas.width = width * ratio;
    canvas.height = height * ratio;
    const g = canvas.getContext("2d");
    g.scale(ratio, ratio);
    g.font = "11px system-ui, sans-serif";
    g.clearRect(0, 0, width, height);
    Object.assign(canvas, {g, w: width, tall: height});
  }

  // A strip of stacked shares for the cycles from..to.
  strip(canvas, from, to, top) {
    const {g, w} = canvas, X = c => GUTTER + (c - from) / (to - from) * (w - GUTTER), names = Object.keys(this.t.percent);
    let begin = 0;
    this.t.cycle.forEach((end, i) => {
      if (end > from && begin < to) {
        const x = Math.max(GUTTER, X(begin)), wide = Math.min(w, X(end)) - x;
        let y = top + STRIP;
        for (const name of names) {
          const tall = this.t.percent[name][i] / 100 * STRIP;
          g.fillStyle = colour(name);
          g.fillRect(x, y - tall, wide + 0.4, tall);
          y -= tall;
        }
      }
      begin = end;
    });
    g.fillStyle = css("--soft");
    g.textAlign = "right";
    g.fillText("slots", GUTTER - 6, top + STRIP / 2 + 4);
  }

  axis(canvas, from, to, bottom) {
    const {g, w} = canvas, step = niceStep((to - from) / Math.max(2, (w - GUTTER) / 110));
    g.textAlign = "center";
    for (let c = Math.ceil(from / step) * step; c <= to; c += step) {
      const x = GUTTER + (c - from) / (to - from) * (w - GUTTER);
      g.fillStyle = css("--line");
      g.fillRect(x, AXIS - 5, 1, bottom - AXIS + 5);
      g.fillStyle = css("--soft");
      if (x < w - 24) g.fillText(whole(c), Math.max(x, GUTTER + 12), 12);
    }
  }

  drawOverview() {
    const canvas = this.overview, {g, w} = canvas, X = c => GUTTER + c / this.end * (w - GUTTER);
    this.axis(canvas, 0, this.end, AXIS + STRIP);
    this.strip(canvas, 0, this.end, AXIS);
    const left = X(this.from), right = Math.max(X(this.to), left + 2);
    g.fillStyle = css("--paper");
    g.globalAlpha = 0.4;
    g.fillRect(GUTTER, AXIS, left - GUTTER, STRIP);
    g.fillRect(right, AXIS, w - right, STRIP);
    g.globalAlpha = 1;
    g.strokeStyle = css("--ink");
    g.lineWidth = 1.5;
    g.strokeRect(left - 1, AXIS - 1, right - left + 2, STRIP + 2);
    g.fillStyle = css("--accent");
    for (const win of this.windows) g.fillRect(X(win.first), AXIS + STRIP + 1, Math.max(2, X(win.last) - X(win.first)), 3);
  }

  drawDetail() {
    const canvas = this.detail, {g, w} = canvas, perCycle = (w - GUTTER) / (this.to - this.from);
    const X = c => GUTTER + (c - this.from) * perCycle, tall = this.trackHeight, bottom = this.bottom;
    this.axis(canvas, this.from, this.to, bottom);
    this.strip(canvas, this.from, this.to, AXIS);
    for (let sch = 0; sch < this.t.schedulers && sch < this.t.warps; sch++) {
      const mine = Math.ceil((this.t.warps - sch) / this.t.schedulers);
      g.fillStyle = css("--hover");
      g.fillRect(GUTTER, this.trackTop(sch), w - GUTTER, mine * tall);
      g.fillStyle = css("--soft");
      g.textAlign = "right";
      g.fillText(`sched. ${sch}`, GUTTER - 5, this.trackTop(sch) + mine * tall / 2 + 4);
    }
    g.save();
    g.beginPath();
    g.rect(GUTTER, AXIS + STRIP, w - GUTTER, bottom);
    g.clip();
    let any = false;
    for (const win of this.windows) any = this.drawWindow(win, g, X, perCycle, tall) || any;
    g.restore();
    g.textAlign = "center";
    g.fillStyle = css("--soft");
    if (!any) g.fillText("single issues of these cycles were not kept", GUTTER + (w - GUTTER) / 2, (AXIS + STRIP + bottom) / 2);
    g.fillText("cycles", GUTTER + (w - GUTTER) / 2, bottom + 18);
  }

  drawWindow(win, g, X, perCycle, tall) {
    const {e, at} = win, rows = this.launch.instructions, thin = Math.max(perCycle, 0.8);
    if (win.last <= this.from || win.first >= this.to) return false;
    const slack = perCycle > 0.3 ? 1500 : 1;
    for (let i = this.lower(win, this.from - slack); i < at.length && at[i] < this.to; i++) {
      const x = X(at[i]), y = this.trackTop(e.warp[i]), kind = this.kinds[e.instruction[i]], fill = KINDS[kind][1];
      if (perCycle > 0.3 && e.there[i] > 8) {
        g.globalAlpha = 0.4;
        g.fillStyle = fill;
        g.fillRect(x + thin, y + tall - 3, Math.max(0, (e.there[i] - 1) * perCycle), 2);
        g.globalAlpha = 1;
      }
      if (x + thin < GUTTER) continue;
      g.fillStyle = fill;
      g.fillRect(x, y + 1 + (e.second[i] ? tall / 2 - 1 : 0), perCycle > 4 ? perCycle - 1 : thin, e.second[i] ? tall / 2 - 1 : tall - 3);
      if (perCycle > 38 && !e.second[i]) {
        g.fillStyle = "#10151c";
        g.textAlign = "left";
        g.fillText(rows[e.instruction[i]].text.replace(/^@\S+\s+/, "").split(/[ .;]/)[0], x + 3, y + tall - 4, perCycle - 5);
      }
    }
    return true;
  }
}

function niceStep(least) {
  const power = 10 ** Math.floor(Math.log10(Math.max(least, 1)));
  return Math.max(1, [1, 2, 5, 10].map(n => n * power).find(n => n >= least));
}
