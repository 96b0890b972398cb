#!/usr/bin/python3
"""The same random program over pml/mp and osc/mp and over Open MPI's own messages and windows in shared memory:
random_programs.py BUILD ROOT SERIES RANKS TRANSPORT [FAULTS] SEED ...

What was received must be the same, byte by byte (random.c prints a digest). FAULTS: a file of softhca's, in which ports go
down; some rank has to notice. A fast machine is done before: then the program is made twice as long, and so on. The others'
windows are osc/sm: 4.1's osc/rdma crashes, and its osc/pt2pt gives other bytes."""
import os
import re
import subprocess
import sys

LENGTHS = [40 << turn for turn in range(6)] # rounds


def digest(command, env):
    done = subprocess.run(command, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    found = re.search(r'^random: .*: (\w{16})$', done.stdout, re.M)
    if done.returncode or not found:
        sys.exit(f'failed: {" ".join(command)}\n{done.stdout}')
    return found[1], done.stdout


def main():
    if len(sys.argv) < 7:
        sys.exit(__doc__)
    build, root, series, ranks, transport = sys.argv[1:6]
    env = {**os.environ, 'UCT_MP_LIBRARY': f'{build}/lib/libuct_mp.so', 'OMPI_ALLOW_RUN_AS_ROOT': '1',
           'OMPI_ALLOW_RUN_AS_ROOT_CONFIRM': '1', 'OMPI_MCA_pml_mp_statistics': '1',
           'OMPI_MCA_orte_allowed_exit_without_sync': '1'} # as carried.py
    run = ['--oversubscribe', '--bind-to', 'none', '-n', ranks]
    seeds, faults = sys.argv[6:], []
    if not seeds[0].isdigit():
        faults = ['--faults', seeds.pop(0)]
        env['UCX_LOG_LEVEL'] = 'info'
    wrong = 0
    for seed in seeds:
        for rounds in LENGTHS if faults else LENGTHS[:1]:
            program = [f'{build}/bin/mpi_random', seed, str(rounds)]
            theirs, _ = digest(['mpirun', *run, '--mca', 'pml', 'ob1', '--mca', 'btl',
                                'self,vader' if series == '4' else 'self,sm', '--mca', 'osc', 'sm', *program], env)
            ours, said = digest([f'{build}/bin/softhca', 'run', '--fabric', f'{root}/config/fabrics/two-rail.yaml', *faults,
                                 '--', f'{root}/config/openmpi/mpirun-mp', *run, '--mca', 'pml', 'mp', '--mca', 'osc', 'mp',
                                 '--mca', 'pml_mp_transports', f'self,posix,cma,{transport}', *program], env)
            carried = re.search(rf'{transport} [1-9]\d* messages', said) and \
                {int(rank) for rank in re.findall(r'pml/mp: rank (\d+): ', said)} == set(range(int(ranks)))
            noticed = not faults or 'port is down' in said
            print(f'seed {seed}, {rounds} rounds: {theirs} over ob1, {ours} over {transport}' +
                  ('' if carried else ', which has carried nothing, or not of every rank') +
                  ('' if noticed else ', and nobody has noticed a port that is down'))
            if noticed or theirs != ours or not carried:
                break
        wrong += theirs != ours or not carried or not noticed
    return 1 if wrong else 0


if __name__ == '__main__':
    sys.exit(main())
