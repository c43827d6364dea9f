"""Draws docs/hopper-forms.md: which forms of each instruction of sm_80 to sm_90 are served, which left out.

    python tools/forms_table.py            writes the page
    python tools/forms_table.py --print    writes it to standard output"""

import argparse
import collections
import json
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "hopper-forms.md"
ARCHS = ("80", "86", "89", "90")
# What bits 9..11 of an opcode say of arithmetic: the kind of the source at bits 32..63, and which source that is.
COLUMNS = {1: "register", 4: "immediate", 5: "constant", 6: "uniform", 2: "immediate, last", 3: "constant, last",
           7: "uniform, last", 0: "other"}
HEAD = """# Forms of operands

Drawn by `tools/forms_table.py` from `tests/isa/forms.json`; `tests/isa/test_forms.py` holds nvdisasm to it. A form is
an opcode of 12 bits with the vendor's own name for its layout. Columns go by bits 9 to 11 of the opcode, which for
arithmetic say what stands at bits 32 to 63, and whether it is the middle or the last source; a constant is
`c[bank][offset]` or `cx[UR][offset]`. A number is how many forms are served on any of sm_80, 86, 89 and 90; in
brackets, how many are left out.
"""


def _cell(forms: list[str], left: dict[str, set[str]], archs: dict[str, set[str]]) -> str:
    served = sum(1 for form in forms if archs[form] - left.get(form, set()))
    out = len(forms) - served
    return (str(served) if served else "") + (f" ({out})" if out else "")


def page(data: dict) -> str:  # type: ignore[type-arg]
    """The whole page as Markdown."""
    families = {name: why for why, names in data["left_out"].items() for name in names.split()}
    archs = {form: {a for every in words.values() for a in every.split()} for form, words in data["forms"].items()}
    left = {form: set(every.split()) for forms in data["left_out_forms"].values() for form, every in forms.items()}
    table: dict[str, dict[int, list[str]]] = collections.defaultdict(lambda: collections.defaultdict(list))
    for form in data["forms"]:
        opcode, name = form.split(" ")
        table[name.split("_")[0].upper()][int(opcode, 16) >> 9].append(form)
    lines = [HEAD, "| | " + " | ".join(COLUMNS.values()) + " |", "|---" * (len(COLUMNS) + 1) + "|"]
    lines += [f"| {family} | " + " | ".join(_cell(table[family][n], left, archs).strip() for n in COLUMNS) + " |"
              for family in sorted(table) if family not in families]
    lines += ["", "## Left out", "", "| why | families (forms) |", "|---|---|"]
    for why, names in data["left_out"].items():
        counted = [f"{name} ({sum(map(len, table[name].values()))})" for name in names.split()]
        lines.append(f"| {why} | {', '.join(counted)} |")
    lines += ["", "| why | forms | on sm_ |", "|---|---|---|"]
    for why, forms in data["left_out_forms"].items():
        for every in sorted(set(forms.values())):
            mine = ", ".join(f"`{form}`" for form in sorted(forms) if forms[form] == every)
            lines.append(f"| {why} | {mine} | {every} |")
    total = {a: sum(a in every for every in archs.values()) for a in ARCHS}
    gone = {a: sum(a in every and (form.split(" ")[1].split("_")[0].upper() in families or a in left.get(form, ()))
                   for form, every in archs.items()) for a in ARCHS}
    lines += ["", "| | " + " | ".join(f"sm_{a}" for a in ARCHS) + " |", "|---" * (len(ARCHS) + 1) + "|",
              "| forms that nvdisasm 12.8 knows | " + " | ".join(str(total[a]) for a in ARCHS) + " |",
              "| served | " + " | ".join(str(total[a] - gone[a]) for a in ARCHS) + " |",
              "| left out | " + " | ".join(str(gone[a]) for a in ARCHS) + " |"]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--print", action="store_true", dest="show", help="to standard output")
    args = parser.parse_args()
    text = page(json.loads((ROOT / "tests" / "isa" / "forms.json").read_text()))
    if args.show:
        print(text, end="")
    else:
        PAGE.write_text(text)


if __name__ == "__main__":
    main()
