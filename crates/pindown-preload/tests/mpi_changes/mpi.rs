//! The few calls of MPI, in either ABI, found at run time: the guest has no compiler, the host no MPI.

// The field that takes the function says its type.
#![allow(clippy::missing_transmute_annotations)]

use std::ffi::{CString, c_int, c_void};
use std::ptr;

const TAG: c_int = 7;

/// A handle: an `int` in MPICH's ABI, a pointer in Open MPI's; either travels in one register.
type Handle = *mut c_void;
type Transfer = unsafe extern "C" fn(*mut c_void, c_int, Handle, c_int, c_int, Handle) -> c_int;
type Receive = unsafe extern "C" fn(*mut c_void, c_int, Handle, c_int, c_int, Handle, *mut c_void) -> c_int;
type OnWorld<T> = unsafe extern "C" fn(Handle, T) -> c_int;

pub(crate) struct Mpi {
    send: Transfer,
    receive: Receive,
    barrier: unsafe extern "C" fn(Handle) -> c_int,
    finalize: unsafe extern "C" fn() -> c_int,
    world: Handle,
    byte: Handle,
    ignore: *mut c_void,
    rank: i32,
}

impl Mpi {
    pub(crate) fn start(library: &str) -> Self {
        let name = CString::new(library).unwrap();
        // SAFETY: MPI libraries are made to be loaded; the name is terminated.
        let lib = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL) };
        assert!(!lib.is_null(), "{library} cannot be loaded");
        let is_mpich = library.contains("mpich");
        let symbol = |name: &str| {
            let c = CString::new(name).unwrap();
            // SAFETY: an open handle and a terminated name.
            let found = unsafe { libc::dlsym(lib, c.as_ptr()) };
            assert!(!found.is_null(), "{library} has no {name}");
            found
        };
        // The values of MPICH's mpi.h are its ABI; Open MPI's are objects of the library.
        let handle = |mpich: usize, open_mpi: &str| match is_mpich {
            true => ptr::without_provenance_mut(mpich),
            false => symbol(open_mpi),
        };
        // SAFETY: the signatures of mpi.h.
        unsafe {
            use std::mem::transmute as to;
            let init: unsafe extern "C" fn(*mut c_int, *mut c_void) -> c_int = to(symbol("MPI_Init"));
            assert_eq!(init(ptr::null_mut(), ptr::null_mut()), 0, "MPI_Init");
            let world = handle(0x4400_0000, "ompi_mpi_comm_world");
            let ask = |name: &str| {
                let (f, mut answer): (OnWorld<*mut c_int>, _) = (to(symbol(name)), 0);
                assert_eq!(f(world, &raw mut answer), 0, "{name}");
                answer
            };
            assert_eq!(ask("MPI_Comm_size"), 2, "start it with mpirun -n 2");
            Self {
                send: to(symbol("MPI_Send")),
                receive: to(symbol("MPI_Recv")),
                barrier: to(symbol("MPI_Barrier")),
                finalize: to(symbol("MPI_Finalize")),
                world,
                byte: handle(0x4C00_010D, "ompi_mpi_byte"),
                ignore: ptr::without_provenance_mut(usize::from(is_mpich)),
                rank: ask("MPI_Comm_rank"),
            }
        }
    }

    pub(crate) fn rank(&self) -> i32 {
        self.rank
    }

    pub(crate) fn send(&self, addr: *mut u8, len: usize) {
        // SAFETY: `len` mapped bytes; the call returns when they may be changed.
        let result = unsafe { (self.send)(addr.cast(), len as c_int, self.byte, 1, TAG, self.world) };
        assert_eq!(result, 0, "MPI_Send");
    }

    pub(crate) fn receive(&self, addr: *mut u8, len: usize) {
        // SAFETY: `len` mapped bytes to which nothing refers meanwhile.
        let result =
            unsafe { (self.receive)(addr.cast(), len as c_int, self.byte, 0, TAG, self.world, self.ignore) };
        assert_eq!(result, 0, "MPI_Recv");
    }

    /// Both are done with the message.
    pub(crate) fn ready(&self) {
        // SAFETY: a collective call that both ranks make.
        assert_eq!(unsafe { (self.barrier)(self.world) }, 0, "MPI_Barrier");
    }

    pub(crate) fn finish(&self) {
        // SAFETY: the last call.
        assert_eq!(unsafe { (self.finalize)() }, 0, "MPI_Finalize");
    }
}
