// Puts the sections together, for the launch that is chosen.
const launches = simulation.launches;
let timeline = null;

function head() {
  const first = launches[0], seconds = sum(launches.map(l => l.seconds)), changed = Object.entries(about.changed);
  const tile = (value, name) => h("div", {class: "tile"}, h("b", {}, value), h("span", {}, name));
  document.title = `${about.what}, simulated ${about.preset}`;
  document.getElementById("head").append(
    h("span", {class: "badge"}, `Simulated on ${about.preset}`), h("h1", {}, about.what),
    h("p", {class: "soft"}, [simulation.shape, simulation.layout && `layout ${simulation.layout}`, simulation.pass && `pass ${simulation.pass}`,
      simulation.algorithm && `algorithm ${simulation.algorithm}`].filter(Boolean).join("; ")),
    h("p", {class: "note"}, `Simulated on the preset ${about.preset} (${about.chip}), scheduling ${first.policy}; nothing on this page was measured on a GPU.`
      + (changed.length ? ` Changed by the caller: ${changed.map(([k, v]) => `${k} = ${JSON.stringify(v)}`).join(", ")}.` : "")),
    h("div", {class: "tiles"}, tile(whole(simulation.clocks), "clocks"), tile((1e6 * seconds).toLocaleString("en-US", {maximumFractionDigits: 1}) + " µs", "time"),
      simulation.ce === undefined ? null : tile(percent(simulation.ce) + " %", "computational efficiency"),
      simulation.convolution ? tile(percent(simulation.convolution.ce) + " %", "of the convolution kernel alone") : null,
      tile(whole(launches.length), launches.length === 1 ? "launch" : "launches")));
}

function timeSection(chosen) {
  const most = Math.max(...launches.map(l => l.clocks)), useful = launches.some(l => l.useful_flops);
  const described = launches.some(l => l.doing);
  const columns = [["launch", "left"], ["clocks"], ["µs"], ["% of time"], ...(useful ? [["efficiency %"]] : []), ["", "left wide"], ["kernel", "left mono wide"],
    ...(described ? [["does", "left wide"]] : [])];
  const rows = launches.map((l, i) => [String(i + 1), whole(l.clocks), (1e6 * l.seconds).toFixed(1), percent(100 * l.clocks / simulation.clocks),
    ...(useful ? [l.useful_flops ? percent(l.ce) : NONE] : []), bar([[l.clocks / most, "var(--accent)", ""]]), l.kernel,
    ...(described ? [l.doing || ""] : [])]);
  return h("section", {id: "time"}, h("h2", {}, "Time by launch"),
    h("p", {class: "note"}, launches.length > 1 ? "Click a launch: everything below is about the one that is chosen." : "One launch."),
    table("time-table", columns, rows, i => ({class: i === chosen ? "pick chosen" : "pick", "data-launch": i, onclick: () => show(i)})));
}

function menu(chosen) {
  const links = [["time", "Time"], ["slots", "Issue slots"], ["limits", "Limits"], ["occupancy", "Occupancy"], ["memory", "Memory"], ["timeline", "Timeline"],
    ["source", "Source"]];
  const choice = h("select", {id: "launch", onchange: e => show(Number(e.target.value))}, launches.map((l, i) =>
    h("option", {value: i, selected: i === chosen}, `${i + 1}: ${l.kernel}`)));
  return h("nav", {}, links.map(([id, name]) => h("a", {href: `#${id}`}, name)), launches.length > 1 ? h("label", {}, "launch ", choice) : null);
}

function show(chosen) {
  const launch = launches[chosen], source = new SourceSection(launch);
  timeline = new TimelineSection(launch, source);
  document.getElementById("main").replaceChildren(menu(chosen), timeSection(chosen),
    h("div", {class: "two"}, h("div", {}, slotsSection(launch), occupancySection(launch)), h("div", {}, limitsSection(launch), executedSection(launch))),
    memorySection(launch), timeline.node, source.node);
  timeline.draw();
}

head();
show(launches.reduce((best, l, i) => l.clocks > launches[best].clocks ? i : best, 0));
addEventListener("resize", () => timeline.draw());
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => timeline.draw());
