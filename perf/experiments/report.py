"""The table on the terminal, and the report: one HTML file, `text / ours / why different`, plots and heat maps inside."""
import html

from experiments.claims import Heat, is_calibrated
from speed import report as bars

WORD = {True: "agrees", False: "DIFFERS", None: ""}
SIZE = {True: "near", False: "far", None: ""}


def calibrated(one):
    return "yes" if is_calibrated(one) else ""


def lines(claims):
    yield f"{'figure':12} {'what':66} {'text':>22} {'ours':>10} {'order':7} {'size':4} calibrated"
    for one in claims:
        yield f"{one.figure:12} {one.what:66} {one.text:>22} {one.ours:>10} {WORD[one.agrees]:7} {SIZE[one.size]:4} {calibrated(one)}".rstrip()


def heat(plot):
    xs, ys = sorted({x for x, _ in plot.cells}), sorted({y for _, y in plot.cells})
    rows = ["$d << EOD"] + [f"{x} {y} {plot.cells[x, y]:.5g}" for y in ys for x in xs if (x, y) in plot.cells] + ["EOD"]
    tics = [f"set {axis}tics {max(1, (values[-1] - values[0]) // 6)}" for axis, values in (("x", xs), ("y", ys))]  # whole numbers
    return bars.gnuplot(["set title '%s' noenhanced" % plot.title, f"set xlabel '{plot.x}'", f"set ylabel '{plot.y}'", *tics,
                         f"set cblabel '{plot.unit}'", "set cbrange [0:*]", "set palette gray", "unset key",
                         f"set xrange [{xs[0] - 0.5}:{xs[-1] + 0.5}]", f"set yrange [{ys[0] - 0.5}:{ys[-1] + 0.5}]", *rows,
                         "plot $d using 1:2:3 with image pixels"])


def write(path, groups, plots, missing, head):
    """groups: [(title, [Claim])]."""
    color = {True: "background:#cfc", False: "background:#fcc", None: ""}
    with open(path, "w", encoding="utf-8") as out:
        out.write("<!doctype html><meta charset='utf-8'><title>The papers' experiments</title><style>body{font:14px sans-serif;margin:2em}"
                  "td,th{padding:2px 8px;text-align:left;border-bottom:1px solid #ddd}</style>\n<h1>The papers' experiments</h1>"
                  f"<p>{html.escape(head)}</p>\n")
        for title, claims in groups:
            out.write(f"<h2>{html.escape(title)}</h2><table><tr><th>figure<th>what<th>text<th>ours<th>order<th>size<th>calibrated<th>why different</tr>\n")
            for one in claims:
                why = one.why if one.agrees is False else ""
                out.write(f"<tr><td>{one.figure}<td>{html.escape(one.what)}<td>{html.escape(one.text)}<td>{html.escape(one.ours)}"
                          f"<td style='{color[one.agrees]}'>{WORD[one.agrees]}<td style='{color[one.size]}'>{SIZE[one.size]}"
                          f"<td>{calibrated(one)}<td>{html.escape(why)}</tr>\n")
            out.write("</table>\n")
        out.write("<h2>What can't be had yet</h2><table><tr><th>figure<th>what<th>what it would take</tr>\n"
                  + "".join(f"<tr><td>{a}<td>{html.escape(b)}<td>{html.escape(c)}</tr>\n" for a, b, c in missing) + "</table>\n")
        out.write("<h2>Plots</h2>\n" + "\n".join(heat(p) if isinstance(p, Heat) else bars.draw(p) for p in plots) + "\n")
