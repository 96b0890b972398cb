#!/usr/bin/python3
"""MPI_Win_post, start, complete and wait send messages between neighbours only: neighbours.py BUILD ROOT TRANSPORT

In a ring each epoch costs every rank two messages: it tells one neighbour that it may come, and the other one that it has been
there. While two ranks have epochs, the others send nothing. Every rank's count is its own (--mca pml_mp_statistics 1)."""
import os
import subprocess
import sys

from carried import SAID, SENT

RANKS, EPOCHS = 4, 500
ELSE = 60  # messages of the beginning and the end


def messages(build, root, transport, shape):
    """How many messages each rank has sent by the transport."""
    env = {**os.environ, 'UCT_MP_LIBRARY': f'{build}/lib/libuct_mp.so', 'OMPI_ALLOW_RUN_AS_ROOT': '1',
           'OMPI_ALLOW_RUN_AS_ROOT_CONFIRM': '1', 'OMPI_MCA_pml_mp_statistics': '1',
           'OMPI_MCA_orte_allowed_exit_without_sync': '1'} # as carried.py
    command = [f'{build}/bin/softhca', 'run', '--fabric', f'{root}/config/fabrics/two-rail.yaml', '--',
               f'{root}/config/openmpi/mpirun-mp', '--oversubscribe', '--bind-to', 'none', '-n', str(RANKS), '--mca', 'pml', 'mp',
               '--mca', 'osc', 'mp', '--mca', 'pml_mp_transports', f'self,posix,cma,{transport}',
               f'{build}/bin/mpi_neighbours', shape, str(EPOCHS)]
    done = subprocess.run(command, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    counts = {int(rank): sum(int(number) for name, number, *_ in SENT.findall(line) if name == transport)
              for rank, line, *_ in SAID.findall(done.stdout)}
    if done.returncode or f'neighbours: {RANKS} ranks ok' not in done.stdout or set(counts) != set(range(RANKS)):
        sys.exit(f'failed: {" ".join(command)}\n{done.stdout}')
    print(f'{shape}, {EPOCHS} epochs: messages of each rank {[counts[rank] for rank in range(RANKS)]}')
    return counts


def main():
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    wrong = [count for count in messages(*sys.argv[1:], 'ring').values() if not 2 * EPOCHS <= count <= 2 * EPOCHS + ELSE]
    for rank, count in messages(*sys.argv[1:], 'pair').items():
        least = EPOCHS if rank < 2 else 0
        wrong += [count] if not least <= count <= least + ELSE else []
    return 1 if wrong else 0


if __name__ == '__main__':
    sys.exit(main())
