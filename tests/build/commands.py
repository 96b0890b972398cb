"""Commands of an installed build, for installed.py and modulefile.py."""
import os
import subprocess
import sys

OURS = ("UCX_", "UCT_", "SOFTHCA_", "LD_", "OMPI_")


def run(argv, env=None, **more):
    """What it prints. In `env`, or in this one without variables that are about us; `more` are added. A failure is the end."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(OURS)}
    result = subprocess.run(argv, env=dict(env or clean, **more), text=True, cwd="/", stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT, timeout=90)
    if result.returncode:
        sys.exit(f"{' '.join(argv)}: exit code {result.returncode}\n{result.stdout[-3000:]}")
    return result.stdout


def need(condition, message):
    if not condition:
        sys.exit(message)
