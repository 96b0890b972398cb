#!/usr/bin/python3
"""A manual page of what a program says with --help: man.py NAME VERSION SUMMARY OUT PROGRAM"""
import os
import subprocess
import sys

name, version, summary, out, program = sys.argv[1:]
text = subprocess.run([program, "--help"], check=True, text=True, stdout=subprocess.PIPE).stdout.replace(program, name)
lines = [line.replace("\\", "\\e").replace("-", "\\-") for line in text.rstrip().splitlines()]
lines = ["\\&" + line if line.startswith((".", "'")) else line for line in lines]
os.makedirs(os.path.dirname(out), exist_ok=True)
with open(out, "w") as page:
    page.write(f'.TH "{name.upper()}" 1 "" "ucx-mp {version}" ""\n.SH NAME\n{name} \\- {summary}\n'
               f'.SH DESCRIPTION\n.nf\n' + "\n".join(lines) + "\n.fi\n")
