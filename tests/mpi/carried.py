#!/usr/bin/python3
"""Runs a job with pml/mp and fails if our transport did not carry its messages: carried.py RANKS TRANSPORT -- COMMAND

Every rank says at its end what it has sent by which transport (--mca pml_mp_statistics 1, set here). RANKS have to speak,
TRANSPORT has to have carried something of each of them, no other network transport any, and no message may have been
dropped. Collective operations that $CARRIED_COLLECTIVES names, by comma, have to be coll/mp's at every rank. The job's own exit code comes first. Whether a rank came to MPI_Finalize its line says, not Open MPI's launcher
(4.1): a rank waits two seconds for the launcher's answer there, then it goes, and is said to have gone without. But of a
job that starts others, whose ranks have the same numbers.
"""
import os
import re
import subprocess
import sys

SAID = re.compile(r'pml/mp: rank (\d+): (.*); eager .* dropped (\d+);.*windows: [^;]* dropped (\d+)'
                  r'; collectives: [^;]* dropped (\d+)')
SENT = re.compile(r'(\w+) (\d+) messages (\d+) bytes(?: \+ (\d+) moves (\d+) bytes)?')


def main():
    if len(sys.argv) < 5 or sys.argv[3] != '--':
        sys.exit(__doc__)
    ranks, transport = int(sys.argv[1]), sys.argv[2]
    env = {**os.environ, 'OMPI_MCA_pml_mp_statistics': '1'}
    if not any(word.endswith(('mpi_spawn', 'mpi_dynamic')) for word in sys.argv):
        env['OMPI_MCA_orte_allowed_exit_without_sync'] = '1'
    job = subprocess.run(sys.argv[4:], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors='replace', env=env)
    sys.stdout.write(job.stdout)
    if job.returncode:
        sys.exit(job.returncode if job.returncode > 0 else 1)
    wrong, totals, spoke = [], {}, set()
    for rank, line, *dropped in SAID.findall(job.stdout):
        spoke.add(int(rank))
        if dropped != ['0', '0', '0']:
            wrong.append(f'rank {rank} has dropped {", ".join(dropped)} messages (the last two: of windows, of collectives)')
        for name, messages, bytes_, moves, moved in SENT.findall(line):
            total = totals.setdefault(name, [0, 0, 0])
            total[0] += int(messages)
            total[1] += int(bytes_) + int(moved or 0)
            total[2] += 1 if int(messages) or int(moves or 0) else 0
    if spoke != set(range(ranks)):
        wrong.append(f'only ranks {sorted(spoke)} of {ranks} say what they have sent')
    for kind in filter(None, os.environ.get('CARRIED_COLLECTIVES', '').split(',')):
        by_us = re.findall(rf'collectives: [^;]*\b{kind} (\d+),', job.stdout)
        if len(by_us) != ranks:
            wrong.append(f'{kind} was done by our own of {len(by_us)} ranks')
    carriers = totals.get(transport, [0, 0, 0])[2]
    if carriers < ranks:
        wrong.append(f'{transport} has carried nothing of {ranks - carriers} ranks')
    for name in ('mp_rc', 'mp_dc'):
        if name != transport and totals.get(name, [0])[0]:
            wrong.append(f'{name} has carried messages, not only {transport}')
    print('carried: ' + ', '.join(f'{name} {total[0]} messages {total[1]} bytes' for name, total in totals.items()))
    for line in wrong:
        print(f'carried: FAILED: {line}')
    return 1 if wrong else 0


if __name__ == '__main__':
    sys.exit(main())
