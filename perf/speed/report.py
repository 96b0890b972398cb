"""The table on the terminal, and the report: one HTML file with the plots (SVG, drawn by gnuplot) inside."""
import html
import os
import subprocess

from speed.rows import ROWS, met

WORD = {True: "met", False: "MISSED", None: ""}


def bound(result):
    return f"{result.sense} {result.target:g}" if result.value is not None else "printed"


def table(results):
    lines = [f"{'row':14} {'case':52} {'target':>8} {'':6}  result"]
    lines += [f"{r.row:14} {r.what:52} {bound(r):>8} {WORD[met(r)]:6}  {r.text}" for r in results]
    return "\n".join(lines)


def gnuplot(lines):
    program = "\n".join(["set terminal svg size 760,330 dynamic background rgb 'white'", *lines])
    done = subprocess.run(["gnuplot"], input=program, text=True, capture_output=True, check=False)
    if done.returncode:
        raise RuntimeError(f"gnuplot: {done.stderr}")
    return done.stdout[done.stdout.index("<svg"):]


def draw(plot):
    lines = [f"set title '{plot.title}'", f"set ylabel '{plot.unit}'", "set grid y", "set yrange [0:*]", "set key outside right"]
    names = list(plot.series)
    if plot.kind == "bars":
        lines += ["set style data histogram", "set style fill solid 0.7", "$d << EOD"]
        lines += [" ".join([f'"{label}"'] + [f"{plot.series[name][i]:.6g}" for name in names])
                  for i, label in enumerate(plot.labels)]
        lines += ["EOD", "plot " + ", ".join(f"$d using {k + 2}:xtic(1) title '{name}' noenhanced" if k == 0 else
                                             f"$d using {k + 2} title '{name}' noenhanced" for k, name in enumerate(names))]
    elif plot.kind == "time":
        top = 1.15 * max(1e-9, *(y for points in plot.series.values() for _, y in points))
        lines += ["set xlabel 'ms'", f"set yrange [0:{top:.6g}]"]
        for x, label in plot.labels:
            lines += [f"set arrow from {x},0 to {x},{top:.6g} nohead dt 2 lc rgb '#c03030'",
                      f"set label '{label}' at {x},{0.97 * top:.6g} offset 0.4,0 tc rgb '#c03030'"]
        for k, name in enumerate(names):
            lines += [f"$d{k} << EOD", *(f"{x} {y:.6g}" for x, y in plot.series[name]), "EOD"]
        lines += ["plot " + ", ".join(f"$d{k} with lines lw 1.5 title '{name}' noenhanced" for k, name in enumerate(names))]
    else:
        for k, name in enumerate(names):
            lines += [f"$d{k} << EOD", *(f"{x} {y:.6g}" for x, y in plot.series[name]), "EOD"]
        lines += ["set logscale x 2"] if plot.kind == "log" else []
        lines += [f"set xlabel '{plot.labels[0]}'",
                  "plot " + ", ".join(f"$d{k} with " + ("lines dt 2 lc black" if name == "target" else "linespoints lw 1.5")
                                      + f" title '{name}' noenhanced" for k, name in enumerate(names))]
    return gnuplot(lines)


def ratios(results):
    """Every judged result by its target: right of 1 it is met."""
    judged = [r for r in results if r.value is not None and r.row != "instructions" and r.target]
    if not judged:
        return ""
    lines = ["set terminal svg size 760,%d background rgb 'white'" % (90 + 18 * len(judged)),
             "set title 'Judged results by their targets: right of the line is met'", "set style fill solid 0.6",
             "set yrange [-1:%d] reverse" % len(judged), "set xrange [0:*]", "set grid x", "unset key",
             "set arrow from 1, graph 0 to 1, graph 1 nohead lw 2", "set lmargin 45", "$d << EOD"]
    for i, r in enumerate(judged):
        share = r.value / r.target if r.sense == ">=" else r.target / max(r.value, 1e-9)
        lines.append(f'{i} {min(share, 3):.4f} "{r.row}: {r.what}"')
    lines += ["EOD", "plot $d using (0):1:(0):2:($1-0.35):($1+0.35):ytic(3) with boxxyerror lc rgb '#4060a0'"]
    return gnuplot(lines)


def write(path, results, plots, head, rows=None, title="Speed of the transport"):
    cell = {True: "background:#cfc", False: "background:#fcc", None: ""}
    with open(path, "w", encoding="utf-8") as out:
        out.write("<!doctype html><meta charset='utf-8'><title>" + html.escape(title) + "</title><style>body{font:14px sans-serif;"
                  "margin:2em}td,th{padding:2px 8px;text-align:left;border-bottom:1px solid #ddd}</style>\n"
                  f"<h1>{html.escape(title)}</h1><p>{html.escape(head)}</p>\n{ratios(results)}\n")
        for name, row in (rows or ROWS).items():
            of = [r for r in results if r.row == name]
            if not of:
                continue
            out.write(f"<h2>{name}</h2><p>{html.escape(row.__doc__)}</p><table><tr><th>case<th>target<th><th>result</tr>\n")
            for r in of:
                out.write(f"<tr><td>{html.escape(r.what)}<td>{html.escape(bound(r))}<td style='{cell[met(r)]}'>{WORD[met(r)]}"
                          f"<td>{html.escape(r.text)}</tr>\n")
            out.write("</table>\n")
        out.write("<h2>Plots</h2>\n" + "\n".join(draw(plot) for plot in plots) + "\n")
    return os.path.abspath(path)
