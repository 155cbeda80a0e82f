//! [`Context`]: an open device, owned or lent.

use std::ffi::CStr;
use std::io;
use std::mem::zeroed;
use std::ptr::NonNull;

use super::bindings::*;
use super::library::{Lib, check};

/// The names of the machine's verbs devices, e.g. `rxe0`, `mlx5_0`.
pub(crate) fn device_names(lib: &Lib) -> io::Result<Vec<String>> {
    with_devices(lib, |devices| devices.iter().map(|d| name_of(lib, *d)).collect())
}

fn with_devices<R>(lib: &Lib, f: impl FnOnce(&[*mut ibv_device]) -> R) -> io::Result<R> {
    let mut count = 0;
    // SAFETY: `count` outlives the call.
    let list = unsafe { (lib.get_device_list)(&mut count) };
    if list.is_null() {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a non-null list holds `count` devices and lives until it is freed below.
    let answer = f(unsafe { std::slice::from_raw_parts(list, usize::try_from(count).unwrap_or(0)) });
    // SAFETY: it came from get_device_list; opened devices keep what they need.
    unsafe { (lib.free_device_list)(list) };
    Ok(answer)
}

fn name_of(lib: &Lib, device: *mut ibv_device) -> String {
    // SAFETY: `device` is of a live list or context, and so is its name.
    unsafe { CStr::from_ptr((lib.get_device_name)(device)) }.to_string_lossy().into_owned()
}

/// An open device. Closed on drop unless it was lent.
#[derive(Debug)]
pub(crate) struct Context {
    lib: &'static Lib,
    raw: NonNull<ibv_context>,
    owned: bool,
}

// SAFETY: verbs objects may be used from any thread (rdma-core Documentation: libibverbs is
// thread-safe), and the pointer is not replaced.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

/// What `ibv_query_device_ex(3)` says, as far as it is used.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DeviceAttr {
    pub(crate) max_mr: u64,
    pub(crate) max_mr_size_bytes: u64,
    pub(crate) max_sge: usize,
    pub(crate) max_qp_rd_atom: u8,
    pub(crate) max_cqe: i32,
    pub(crate) ports: u8,
    pub(crate) memory_windows: bool,
    pub(crate) odp_general: u64,
    pub(crate) odp_rc: u32,
    pub(crate) odp_uc: u32,
    pub(crate) odp_ud: u32,
    pub(crate) odp_xrc: u32,
}

/// What `ibv_query_port(3)` says, as far as it is used.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PortAttr {
    pub(crate) state: u32,
    pub(crate) active_mtu: u32,
    pub(crate) gid_table_len: i32,
    pub(crate) lid: u16,
    pub(crate) link_layer: u8,
}

impl Context {
    /// Opens the device called `name`; `None` when there is none of that name.
    pub(crate) fn open(lib: &'static Lib, name: &str) -> io::Result<Option<Self>> {
        with_devices(lib, |devices| {
            let Some(device) = devices.iter().find(|d| name_of(lib, **d) == name) else { return Ok(None) };
            // SAFETY: the device is of a live list.
            let raw = NonNull::new(unsafe { (lib.open_device)(*device) });
            let raw = raw.ok_or_else(io::Error::last_os_error)?;
            Ok(Some(Self { lib, raw, owned: true }))
        })?
    }

    /// # Safety
    ///
    /// `raw` is an open context that outlives what is returned.
    pub(crate) unsafe fn lent(lib: &'static Lib, raw: NonNull<ibv_context>) -> Self {
        Self { lib, raw, owned: false }
    }

    pub(crate) fn lib(&self) -> &'static Lib {
        self.lib
    }

    pub(crate) fn raw(&self) -> *mut ibv_context {
        self.raw.as_ptr()
    }

    pub(crate) fn name(&self) -> String {
        // SAFETY: the context is open, so its device is alive.
        name_of(self.lib, unsafe { self.raw.as_ref() }.device)
    }

    /// The extended table, if it reaches down to the entry at offset `at`. Only entries from
    /// there on may be read: an older library's table begins later.
    pub(crate) fn extended(&self, at: usize) -> Option<*const verbs_context> {
        // SAFETY: the context is open. `abi_compat` of all ones says that it lies inside a
        // verbs_context (verbs_get_ctx in verbs.h); `sz` lies directly before it and says how
        // far that extends towards lower addresses.
        unsafe {
            if self.raw.as_ref().abi_compat as usize != usize::MAX {
                return None;
            }
            let offset = std::mem::offset_of!(verbs_context, context);
            let outer = self.raw.as_ptr().cast::<u8>().wrapping_sub(offset).cast::<verbs_context>();
            let known = (&raw const (*outer).sz).read();
            (known >= size_of::<verbs_context>() - at).then_some(outer.cast_const())
        }
    }

    pub(crate) fn query(&self) -> io::Result<DeviceAttr> {
        // SAFETY: all-zero is a value of this plain struct.
        let mut attr: ibv_device_attr_ex = unsafe { zeroed() };
        check(self.query_ex(&mut attr).unwrap_or_else(|| {
            // SAFETY: the context is open, and the struct is what the symbol fills.
            unsafe { (self.lib.query_device)(self.raw(), &mut attr.orig_attr) }
        }))?;
        Ok(DeviceAttr::from(&attr))
    }

    /// As the inline function in verbs.h: `None` where only the old call exists.
    fn query_ex(&self, attr: &mut ibv_device_attr_ex) -> Option<i32> {
        let ext = self.extended(std::mem::offset_of!(verbs_context, query_device_ex))?;
        // SAFETY: `extended` found the entry inside the table; then: open context, no input, a
        // struct of the stated size.
        let ret = unsafe {
            let f = (&raw const (*ext).query_device_ex).read()?;
            f(self.raw(), std::ptr::null(), attr, size_of::<ibv_device_attr_ex>())
        };
        (ret != libc::EOPNOTSUPP && ret != libc::ENOSYS).then_some(ret)
    }

    pub(crate) fn query_port(&self, port: u8) -> io::Result<PortAttr> {
        // SAFETY: all-zero is a value of this plain struct.
        let mut attr: ibv_port_attr = unsafe { zeroed() };
        // SAFETY: the symbol fills the leading part of the struct (struct _compat_ibv_port_attr).
        check(unsafe { (self.lib.query_port)(self.raw(), port, &mut attr) })?;
        Ok(PortAttr {
            state: attr.state,
            active_mtu: attr.active_mtu,
            gid_table_len: attr.gid_tbl_len,
            lid: attr.lid,
            link_layer: attr.link_layer,
        })
    }

    pub(crate) fn query_gid(&self, port: u8, index: i32) -> io::Result<[u8; 16]> {
        let mut gid = ibv_gid { raw: [0; 16] };
        // SAFETY: open context; `gid` outlives the call.
        check(unsafe { (self.lib.query_gid)(self.raw(), port, index, &mut gid) })?;
        Ok(gid.raw)
    }

    /// Whether the kernel no longer knows the device (unplugged, driver removed): uverbs answers
    /// EIO to everything then (drivers/infiniband/core/uverbs_main.c).
    pub(crate) fn is_gone(&self) -> bool {
        matches!(self.query(), Err(e) if matches!(e.raw_os_error(), Some(libc::EIO | libc::ENODEV)))
    }
}

impl From<&ibv_device_attr_ex> for DeviceAttr {
    fn from(attr: &ibv_device_attr_ex) -> Self {
        let a = &attr.orig_attr;
        Self {
            max_mr: u64::try_from(a.max_mr).unwrap_or(0),
            max_mr_size_bytes: a.max_mr_size,
            max_sge: usize::try_from(a.max_sge).unwrap_or(1).max(1),
            max_qp_rd_atom: u8::try_from(a.max_qp_rd_atom).unwrap_or(u8::MAX),
            max_cqe: a.max_cqe,
            ports: a.phys_port_cnt,
            memory_windows: a.device_cap_flags & IBV_DEVICE_MEM_WINDOW != 0 && a.max_mw > 0,
            odp_general: attr.odp_caps.general_caps,
            odp_rc: attr.odp_caps.rc_odp_caps,
            odp_uc: attr.odp_caps.uc_odp_caps,
            odp_ud: attr.odp_caps.ud_odp_caps,
            odp_xrc: attr.xrc_odp_caps,
        }
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        if self.owned {
            // SAFETY: opened by this, and what was made on it holds an Arc of it, so is gone.
            unsafe { (self.lib.close_device)(self.raw()) };
        }
    }
}
