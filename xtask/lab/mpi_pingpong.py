#!/usr/bin/env python3
"""mpirun -n 2 mpi_pingpong.py LIBMPI: a ping-pong of 8 B to 1 MiB whose bytes both ranks check.

Through ctypes, so that one script serves Open MPI and MPICH without a compiler in the guest.
"""
import ctypes
import sys

ROUNDS = 10
SIZES = [8 << shift for shift in range(18)]
TAG = 7


class Mpi:
    def __init__(self, library):
        self.lib = ctypes.CDLL(library, ctypes.RTLD_GLOBAL)
        if "mpich" in library:
            # The values of mpi.h: part of the ABI that MPICH's derivatives share.
            self.world, self.byte = ctypes.c_int(0x44000000), ctypes.c_int(0x4C00010D)
            self.status_ignore = ctypes.c_void_p(1)
        else:
            self.world, self.byte = self.object("ompi_mpi_comm_world"), self.object("ompi_mpi_byte")
            self.status_ignore = ctypes.c_void_p(0)

    def object(self, symbol):
        return ctypes.c_void_p(ctypes.addressof(ctypes.c_char.in_dll(self.lib, symbol)))

    def call(self, name, *args):
        result = getattr(self.lib, name)(*args)
        if result != 0:
            sys.exit(f"{name} returned {result}")

    def ask(self, name):
        value = ctypes.c_int()
        self.call(name, self.world, ctypes.byref(value))
        return value.value

    def send(self, buffer, to):
        self.call("MPI_Send", buffer, len(buffer), self.byte, to, TAG, self.world)

    def receive(self, buffer, source):
        self.call("MPI_Recv", buffer, len(buffer), self.byte, source, TAG, self.world, self.status_ignore)


def pattern(size, seed):
    """Different in each round and each direction, and at each place of a page."""
    line = bytes((i * 31 + seed) % 251 for i in range(251))
    return (line * (size // len(line) + 1))[:size]


def check(buffer, size, seed):
    if buffer.raw != pattern(size, seed):
        sys.exit(f"wrong bytes: {size} bytes, seed {seed}")


def main():
    mpi = Mpi(sys.argv[1])
    mpi.call("MPI_Init", None, None)
    rank = mpi.ask("MPI_Comm_rank")
    if mpi.ask("MPI_Comm_size") != 2:
        sys.exit("wants two ranks")
    for size in SIZES:
        buffer = ctypes.create_string_buffer(size)
        for turn in range(ROUNDS):
            there, back = 2 * turn, 2 * turn + 1
            if rank == 0:
                buffer.raw = pattern(size, there)
                mpi.send(buffer, 1)
                mpi.receive(buffer, 1)
                check(buffer, size, back)
            else:
                mpi.receive(buffer, 0)
                check(buffer, size, there)
                buffer.raw = pattern(size, back)
                mpi.send(buffer, 0)
    mpi.call("MPI_Finalize")
    if rank == 0:
        print(f"{len(SIZES) * ROUNDS} round trips of {SIZES[0]} B to {SIZES[-1]} B, all bytes right")


main()
