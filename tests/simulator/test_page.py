"""`maxdnn simulate --html` in headless Chromium: the page loads alone and without a complaint, its tables hold the
figures of the JSON, its listings sort and jump, its timeline zooms."""

import json
import math
import re
from collections.abc import Iterator
from decimal import ROUND_HALF_UP, Decimal
from pathlib import Path
from typing import Any

import pytest

from maxdnn import cli
from maxdnn.build.cubins import cubin
from maxdnn.cli import _sources
from maxdnn.cubin import read
from maxdnn.simulator import page
from tests import oracles
from tests.browser import Browser

LAYER = "64,4,10,10,64,3,3,1,1"  # five launches: two layouts in, padding, the convolution, the layout out
CUDA = """
extern "C" __global__ void scale(float *out, const float *in, float s) {
    int i = blockIdx.x * blockDim.x + threadIdx.x; out[i] = in[i] * s; }
"""


@pytest.fixture(scope="module")
def layer(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """The page of a layer, and what --json of the same command says."""
    folder = tmp_path_factory.mktemp("layer")
    command = ["simulate", LAYER, "--layout", "NCHW", "--kernel", "sconv_fprop_K64_N64", "--json", "--html",
               str(folder / "layer.html")]
    return folder / "layer.html", json.loads(printed(command))


@pytest.fixture(scope="module")
def launched(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """The page of a launch file: no source, one launch with windows of four thousand cycles, one without one."""
    folder = tmp_path_factory.mktemp("launched")
    (folder / "scale.cubin").write_bytes(oracles.compile_cuda(CUDA))
    (folder / "launch.json").write_text(json.dumps({"buffers": {"a": "zeros:float32:64x128"}, "launches": [
        {"kernel": "scale", "grid": [blocks], "block": [128], "args": ["a", "a", {"f32": 2}]} for blocks in (64, 3)]}))
    command = ["simulate", str(folder / "scale.cubin"), "--launch", str(folder / "launch.json"), "--json", "--html",
               str(folder / "launched.html"), "--set", "l2_latency", "300", "--machine", "gm107"]
    return folder / "launched.html", json.loads(printed(command))


def printed(command: list[str]) -> str:
    import contextlib
    import io
    with contextlib.redirect_stdout(io.StringIO()) as out:
        assert cli.main(command) == 0
    return out.getvalue()


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with Browser() as browser:
        yield browser


@pytest.fixture()
def opened(chromium: Browser, layer: tuple[Path, dict[str, Any]]) -> Iterator[Browser]:
    """The layer's page as it is when it has just been opened, at 1200 pixels; at the end nothing was complained of."""
    chromium.errors.clear()
    chromium.requests.clear()
    chromium.resize(1200, 900)
    chromium.open(layer[0])
    yield chromium
    assert chromium.errors == []


def rows(browser: Browser, name: str) -> list[list[str]]:
    """The cells of a table's body as they are read."""
    found: list[list[str]] = browser.value(f"[...document.querySelectorAll('#{name} tbody tr')].map("
                                           "r => [...r.cells].map(c => c.innerText.trim()))")
    return found


def click(browser: Browser, selector: str) -> None:
    browser.value(f"document.querySelector({json.dumps(selector)}).click()")


# -- what is in the file ----------------------------------------------------------------------------------------------


def data_of(path: Path) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', path.read_text(), re.DOTALL)
    assert found
    data: dict[str, Any] = json.loads(found[1])
    return data


@pytest.mark.parametrize("which", ["layer", "launched"])
def test_the_data_is_what_json_gives_and_a_timeline(which: str, request: pytest.FixtureRequest) -> None:
    path, told = request.getfixturevalue(which)
    simulation = data_of(path)["simulation"]
    timelines = [launch.pop("timeline") for launch in simulation["launches"]]
    assert simulation == told
    assert all(len(window["events"]["cycle"]) > 0 for t in timelines for window in t["windows"])


def test_a_page_is_one_file_without_addresses(layer: tuple[Path, dict[str, Any]]) -> None:
    text = layer[0].read_text()
    outside = text.replace("http://www.w3.org/2000/svg", "")  # the name of a namespace: nothing is fetched
    assert not re.search(r"https?:|//cdn|<link[^>]+href=\"(?!data:)|\bsrc=|@import|url\(", outside)
    assert len(text) < 2_500_000


def test_text_of_the_sources_cannot_end_the_script() -> None:
    made = page.html({"launches": []}, what="</script><b>", preset="p", chip="c", changed={},
                     files={"a": "</script><!-- \u2028"})
    assert made.count("</script>") == 2 and "<!--" not in made


# -- in the browser ---------------------------------------------------------------------------------------------------


def test_the_page_loads_alone_and_says_that_it_is_simulated(opened: Browser, layer: tuple[Path, Any]) -> None:
    assert opened.requests == [layer[0].resolve().as_uri()]
    head = opened.value("document.querySelector('header').innerText")
    assert "Simulated on gm204" in head and "GeForce GTX 980" in head and LAYER in head
    assert opened.value("document.title") == f"{LAYER}, simulated gm204"
    opened.value("console.error('heard')")  # that complaints are heard at all
    assert opened.errors and opened.errors.pop()


def fixed(value: float) -> str:
    """With one digit behind the point, as toFixed writes it: of two as near ones the larger."""
    return str(Decimal(value).quantize(Decimal("0.1"), ROUND_HALF_UP))


def test_the_tables_hold_the_figures_of_the_json(opened: Browser, layer: tuple[Path, dict[str, Any]]) -> None:
    told = layer[1]
    assert [row[:5] + [row[6]] for row in rows(opened, "time-table")] == [
        [str(i), f"{x['clocks']:,}", fixed(1e6 * x['seconds']), f"{100 * x['clocks'] / told['clocks']:.2f}",
         f"{x['ce']:.2f}" if x["useful_flops"] else "–", x["kernel"]] for i, x in enumerate(told["launches"], 1)]
    for number, launch in enumerate(told["launches"]):
        click(opened, f"[data-launch='{number}']")
        assert {name: share for name, share, _ in rows(opened, "slots-table")} == {
            name: f"{share:.2f}" for name, share in launch["slots_percent"].items() if share >= 0.005}
        assert [row[:3] for row in rows(opened, "limits-table")] == [
            [name, f"{share:.2f}", f"{int(launch['clocks'] * share / 100 + 0.5):,}"]
            for name, share in sorted(launch["limits_percent"].items(), key=lambda x: -x[1])]
        assert {name: blocks for name, blocks, _ in rows(opened, "occupancy-table")} == {
            name: f"{blocks:,}" for name, blocks in launch["occupancy"]["blocks_by_limit"].items()}
        assert [row[1] for row in rows(opened, "executed-table")] == [f"{n:,}" for n in launch["executed"].values()]
        hits = {row[0]: row[4] for row in rows(opened, "memory-table")}
        assert all(hits[name] == ("–" if share is None else f"{share:.2f}")
                   for name, share in launch["hit_percent"].items())
        moved = {row[0]: row[2] for row in rows(opened, "memory-table")}
        assert all(moved[name] == f"{n / launch['clocks']:.1f}" for name, n in launch["traffic_bytes"].items())
        limited = opened.value("document.querySelector('#occupancy').innerText")
        assert f"limited by {launch['occupancy']['limited_by']}" in limited


def lost(row: dict[str, Any], launch: dict[str, Any]) -> float:
    return 100 * sum(row["lost"].values()) / float(launch["slots"])


def test_the_source_is_listed_with_its_stalls_and_sorts(opened: Browser, layer: tuple[Path, dict[str, Any]]) -> None:
    launch = max(layer[1]["launches"], key=lambda x: x["clocks"])
    places = {x["place"]: x for x in launch["source_lines"]}
    name = next(iter(places)).split(":")[0]
    text = (Path("sass/maxwell") / name).read_text().split("\n")
    listed = rows(opened, "source-table")
    assert [row[0] for row in listed] == [str(n + 1) for n in range(len(text))]
    for n, row in enumerate(listed):
        at = places.get(f"{name}:{n + 1}")
        assert row[3] == (f"{lost(at, launch):.3f}" if at else "")
        assert row[6].split() == text[n].split()
    click(opened, "#worst")
    worst = rows(opened, "source-table")
    assert [row[3] for row in worst] == [f"{x:.3f}" for x in sorted(
        (lost(x, launch) for x in launch["source_lines"] if x["place"].startswith(name)), reverse=True)] + [""] * (
            len(text) - sum(p.startswith(name + ":") for p in places))
    click(opened, "#ordered")
    assert rows(opened, "source-table") == listed
    click(opened, "[data-view='instructions']")
    click(opened, "#instructions-table th:nth-child(3) button")  # lost %
    assert [row[2] for row in rows(opened, "instructions-table")][:50] == [
        f"{x:.3f}" for x in sorted((lost(x, launch) for x in launch["instructions"]), reverse=True)[:50]]


def test_a_place_is_jumped_to(opened: Browser, layer: tuple[Path, dict[str, Any]]) -> None:
    launch = max(layer[1]["launches"], key=lambda x: x["clocks"])
    worst = max(launch["source_lines"], key=lambda x: lost(x, launch))["place"]
    assert opened.value("document.querySelector('#costliest a').innerText") == worst
    click(opened, "#worst")
    click(opened, "#costliest a")
    name, line = worst.split(":")
    assert opened.value("[...document.querySelectorAll('.hit')].map(r => r.cells[0].innerText)") == [line]
    assert opened.value("document.querySelector('[aria-pressed=true]').dataset.view") == name
    seen = """(() => { const box = q => document.querySelector(q).getBoundingClientRect(), a = box('.hit'),
        b = box('.listing'); return b.top < a.top && a.bottom < b.bottom; })()"""
    assert opened.value(seen)
    opened.value("(() => { const j = document.querySelector('#jump'); j.value = '40';"
                 "j.dispatchEvent(new KeyboardEvent('keydown', {key: 'Enter'})); })()")
    assert opened.value("document.querySelector('.hit').cells[0].innerText") == "40" and opened.value(seen)


def span(browser: Browser) -> tuple[float, float]:
    first, last = browser.value("(d => [Number(d.from), Number(d.to)])(document.querySelector('#detail').dataset)")
    return first, last


def test_the_timeline_zooms_and_moves(opened: Browser, layer: tuple[Path, dict[str, Any]]) -> None:
    clocks = max(x["clocks"] for x in layer[1]["launches"])
    opened.value("document.querySelector('#timeline').scrollIntoView({behavior: 'instant'})")
    picture = "document.querySelector('#detail').toDataURL()"
    box = opened.value("(b => [b.x, b.y, b.width, b.height])(timeline.detail.getBoundingClientRect())")
    x, y = box[0] + box[2] / 2, box[1] + box[3] * 0.7
    before, drawn = span(opened), opened.value(picture)
    opened.mouse("mouseWheel", x, y, deltaX=0, deltaY=-300)
    near = span(opened)
    assert near[1] - near[0] < 0.6 * (before[1] - before[0]) and before[0] < near[0] < near[1] < before[1]
    assert opened.value(picture) != drawn
    opened.mouse("mousePressed", x, y, button="left", buttons=1, clickCount=1)
    opened.mouse("mouseMoved", x - 200, y, button="left", buttons=1)
    opened.mouse("mouseReleased", x - 200, y, button="left", clickCount=1)
    moved = span(opened)
    assert moved[0] > near[0] and moved[1] - moved[0] == pytest.approx(near[1] - near[0])
    click(opened, "#zoom-in")
    assert span(opened)[1] - span(opened)[0] == pytest.approx((moved[1] - moved[0]) / 2)
    click(opened, "#zoom-all")
    assert span(opened) == (0, clocks)
    for _ in range(40):
        click(opened, "#zoom-in")
    assert span(opened)[1] - span(opened)[0] == 8
    click(opened, "#window-0")
    assert span(opened)[0] == 0


def test_an_issue_of_the_timeline_says_what_it_is(opened: Browser, layer: tuple[Path, dict[str, Any]]) -> None:
    data = data_of(layer[0])["simulation"]["launches"]
    launch = max(data, key=lambda x: x["clocks"])
    window = launch["timeline"]["windows"][0]
    cycle, warp = window["events"]["cycle"][0], window["events"]["warp"][0]
    row = launch["instructions"][window["events"]["instruction"][0]]
    opened.value("document.querySelector('#timeline').scrollIntoView({behavior: 'instant'})")
    opened.value(f"timeline.look({cycle - 10}, {cycle + 30})")
    x, y = opened.value("(b => [b.left + GUTTER + 10.5 / 40 * (b.width - GUTTER), "
                        f"b.top + timeline.trackTop({warp}) + 5])(timeline.detail.getBoundingClientRect())")
    opened.mouse("mouseMoved", x, y)
    tip = opened.value("document.querySelector('#tip').innerText")
    assert row["source"] in tip and row["place"] in tip and f"cycle {cycle:,}" in tip
    opened.mouse("mousePressed", x, y, button="left", buttons=1, clickCount=1)
    opened.mouse("mouseReleased", x, y, button="left", clickCount=1)
    assert opened.value("document.querySelector('.hit').cells[0].innerText") == row["place"].split(":")[1]


@pytest.mark.parametrize(("width", "dark", "phone"), [(1200, False, False), (1200, True, False), (390, False, True)])
def test_nothing_is_wider_than_the_screen(opened: Browser, width: int, dark: bool, phone: bool) -> None:
    opened.resize(width, 850, dark, phone)
    assert opened.value("document.documentElement.scrollWidth") <= width
    paper = opened.value("getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, re.findall(r"\d+", paper))) < 200) == dark
    narrow = opened.value("[...document.querySelectorAll('section')].filter(x => x.scrollWidth > x.clientWidth + 1)"
                          ".map(x => x.id)")
    assert narrow == []


# Boxes on the page of what a selector finds, as [left, top, right, bottom].
BOXES = """[...document.querySelectorAll('%s')].map(x => x.getBoundingClientRect()).map(b => [b.left, b.top, b.right,
    b.bottom])"""


def meet(a: list[float], b: list[float]) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]


def on_the_way(a: list[float], steps: int = 200) -> Iterator[list[float]]:
    """Points of a line from (a[0], a[1]) to (a[2], a[3]), as boxes."""
    for n in range(steps + 1):
        x, y = (a[i] + (a[i + 2] - a[i]) * n / steps for i in (0, 1))
        yield [x - 1, y - 1, x + 1, y + 1]


ROOFS = """(() => { const svg = document.querySelector('#roofline'), to = (x, y) => { const p = svg.createSVGPoint();
    p.x = x; p.y = y; const q = p.matrixTransform(svg.getScreenCTM()); return [q.x, q.y]; };
    return [...svg.querySelectorAll('line.roof')].map(l => [...to(l.x1.baseVal.value, l.y1.baseVal.value),
        ...to(l.x2.baseVal.value, l.y2.baseVal.value)]); })()"""


@pytest.mark.sampled(1)
@pytest.mark.parametrize("width", [1200, 390])
def test_no_word_of_the_roofline_is_crossed_or_covered(opened: Browser, layer: tuple[Path, Any], width: int) -> None:
    opened.resize(width, 850, phone=width < 640)
    opened.open(layer[0])
    for number in range(len(layer[1]["launches"])):
        click(opened, f"[data-launch='{number}']")
        words, points = opened.value(BOXES % "#roofline text"), opened.value(BOXES % "#roofline circle")
        roofs = opened.value(ROOFS)
        assert len(words) >= 6 and len(points) >= 2 and len(roofs) >= 3
        marks = points + [box for roof in roofs for box in on_the_way(roof)]
        assert not [(a, b) for a in words for b in marks if meet(a, b)]
        assert not [(a, b) for i, a in enumerate(words) for b in words[:i] if meet(a, b)]
        named = opened.value("[...document.querySelectorAll('#limits .legend > span')].map(x => x.innerText)")
        roofline = layer[1]["launches"][number]["roofline"]
        levels = {name for name, at in roofline["memory"].items() if at["bytes"] > 0}
        assert {text.split(":")[0] for text in named} == levels | set(roofline["flat"])


def lab(colour: str) -> tuple[float, float, float]:
    """CIE L*a*b* of #rrggbb: distances are about what one sees."""
    r, g, b = (int(colour[i:i + 2], 16) / 255 for i in (1, 3, 5))
    r, g, b = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in (r, g, b))
    x, y, z = ((0.4124 * r + 0.3576 * g + 0.1805 * b) / 0.9505, 0.2126 * r + 0.7152 * g + 0.0722 * b,
               (0.0193 * r + 0.1192 * g + 0.9505 * b) / 1.089)
    x, y, z = (t ** (1 / 3) if t > 0.008856 else 7.787 * t + 16 / 116 for t in (x, y, z))
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


def test_no_colour_means_two_things(opened: Browser) -> None:
    """Of reasons, levels and kinds of instructions; a level and the instructions that use it may share one."""
    found = opened.value("[...Object.entries(REASONS).map(([n, [c]]) => [n, c]), ...Object.entries(LEVELS),"
                         "...KINDS.map(([n, c]) => [n, c])]")
    same = {"float arithmetic": "FMA"}
    colours: dict[str, str] = {}
    for name, colour in found:
        assert colours.setdefault(same.get(name, name), colour) == colour
    assert len(colours) == len(found) - 5  # FMA, shared memory, texture, tensor cores twice
    names = sorted(colours)
    near = [(a, b) for i, a in enumerate(names) for b in names[:i]
            if math.dist(lab(colours[a]), lab(colours[b])) < 10]  # 2.3 is what one just sees
    assert near == []


@pytest.mark.parametrize("width", [1200, 390])
def test_a_figure_that_there_is_not_is_a_dash_everywhere(opened: Browser, layer: tuple[Path, Any], width: int) -> None:
    opened.resize(width, 850, phone=width < 640)
    for number in range(len(layer[1]["launches"])):
        click(opened, f"[data-launch='{number}']")
        blank = opened.value("""[...document.querySelectorAll('table:not(.listing *) tbody td')].filter(
            c => !c.innerText.trim() && !c.querySelector('.track')).map(c => c.closest('table').id)""")
        assert blank == []
    for table, view in (("source-table", ":not([data-view=instructions])"), ("instructions-table", "")):
        click(opened, f"[data-view]{view}")
        for row in rows(opened, table):  # a line without instructions has no figures; one with them has all
            figures = row[1:4] + [row[5]] if table[0] == "s" else row[1:3] + [row[4]]
            assert len({bool(text) for text in figures}) == 1, row


def test_on_a_phone_no_row_of_a_table_is_tall_or_wider_than_the_screen(opened: Browser) -> None:
    opened.resize(390, 850, phone=True)
    tall = opened.value("""[...document.querySelectorAll('table:not(.listing *) tbody tr')].filter(row => {
        const words = [...row.cells].reduce((n, c) => n + c.innerText.length, 0);  // some 40 in a line, and a bar
        return row.getBoundingClientRect().height > 28 * (3 + words / 40); }).map(r => r.innerText)""")
    assert tall == []
    beyond = opened.value("""[...document.querySelectorAll('.scroll')].filter(x => x.scrollWidth > x.clientWidth + 1)
        .map(x => x.firstChild.id)""")
    assert beyond == []
    for left, _, right, _ in opened.value(BOXES % "#time-table td"):
        assert left >= 0 and right <= 390


def test_a_page_that_should_have_sources_says_why_it_has_none(chromium: Browser, layer: tuple[Path, dict[str, Any]],
                                                              tmp_path: Path) -> None:
    data = data_of(layer[0])["simulation"]
    for launch in data["launches"]:
        launch.pop("source_lines")
    path = tmp_path / "page.html"
    for missing in ("No Perl here.", ""):
        path.write_text(page.html(data, what="w", preset="p", chip="c", changed={}, files={}, missing=missing))
        chromium.open(path)
        assert chromium.value("(document.querySelector('#missing') || {}).innerText || ''") == missing


def test_a_launch_file_without_source_lists_instructions(opened: Browser, launched: tuple[Path, Any]) -> None:
    opened.open(launched[0])
    head = opened.value("document.querySelector('header').innerText")
    assert "Simulated on gm107" in head and "l2_latency = 300" in head
    launch = max(launched[1]["launches"], key=lambda x: x["clocks"])
    listed = rows(opened, "instructions-table")
    assert [(int(row[0], 16), row[-1].split()) for row in listed] == [
        (x["address"], f"{x['control']} {x['text']}".split()) for x in launch["instructions"]]
    first = f"0x{max(launch['instructions'], key=lambda x: lost(x, launch))['address']:04x}"
    assert opened.value("document.querySelector('#costliest a').innerText") == first
    click(opened, "#costliest a")
    assert opened.value("document.querySelector('.hit').cells[0].innerText") == first


# -- the command ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("path", "words"), [("no/page.html", "--html: there is no folder no"),
                                             (".", "--html: . is a folder")])
def test_a_page_that_cannot_be_written_is_refused_before_the_work(
        path: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("maxdnn.simulator.timing.call", None)
    assert cli.main(["simulate", "64,1,1,1,64,1,1", "--html", path]) == 1
    assert words in capsys.readouterr().err and not list(tmp_path.iterdir())


def test_the_source_of_another_kernel_is_refused_before_the_work(monkeypatch: pytest.MonkeyPatch,
                                                                 capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("maxdnn.simulator.timing.call", None)
    assert cli.main(["simulate", "64,16,6,6,64,3,3", "--source", "sass/maxwell/pad.sass"]) == 1
    assert "the source must be that of the kernel (sass/maxwell/pad.sass has" in capsys.readouterr().err


def test_a_source_of_several_kernels_is_told_apart() -> None:
    """Each instruction's place and the kernel's own text say the same mnemonic."""
    found = _sources.of_cubin(Path("sass/maxwell/product_64x64.sass"), cubin("maxwell/product_64x64", "sm_52"),
                               "sproduct_64x64_nn")
    kernels = read(cubin("maxwell/product_64x64", "sm_52")).kernels
    assert set(found) == set(kernels) and len(kernels) == 4
    for name, source in found.items():
        for (_, text), inst in zip(source.lines, kernels[name].instructions, strict=False):
            assert inst.opcode.split(".")[0] in text
        assert all(place.rpartition(":")[0] in source.files for place, _ in source.lines)
