// SPDX-License-Identifier: MIT
// A plugin in Rust, as a third party writes one: an algorithm that grants so many units in all. The
// structs are those of weir/plugin.h and weir/algorithm.h, as bindgen would make them; the version
// script of rustc exports the table.
#![no_std]

use core::ffi::c_void;

/// A byte of a text of C; `core` has a name for it since Rust 1.64 only.
#[allow(non_camel_case_types)]
type c_char = u8;

#[panic_handler]
fn panic(_: &core::panic::PanicInfo) -> ! {
    loop {}
}

#[repr(C)]
pub struct Value {
    size: usize,
    value: u64,
    text: *const c_char,
    given: u32,
    items_n: u32,
    items: *const *const Value,
}
#[repr(C)]
pub struct Setup {
    size: usize,
    abi_minor: u32,
    values_n: u32,
    limit_type: u32,
    sets_n: u32,
    values: *const *const Value,
}
#[repr(C)]
pub struct Footprint {
    size: usize,
    config: u64,
    state: u64,
    amount_max: u64,
    flags: u32,
    reserved: u32,
}
#[repr(C)]
pub struct Instant {
    now_ns: u64,
    wall_offset_ns: i64,
}
#[repr(C)]
pub struct Parameter {
    size: usize,
    name: *const u8,
    kind: u32,
    flags: u32,
    min: u64,
    max: u64,
    default_value: u64,
    choices: *const c_void,
    doc: *const u8,
}
/// Up to `available`: what comes behind it is absent.
#[repr(C)]
pub struct Algorithm {
    size: usize,
    types: u32,
    flags: u32,
    configure: extern "C" fn(*const Setup, *mut u64, *mut Footprint, *mut c_void) -> i32,
    init: *const c_void,
    ready_at: extern "C" fn(*const u64, *const u64, *const Instant, u64) -> u64,
    take: extern "C" fn(*const u64, *mut u64, *const Instant, u64),
    refund: *const c_void,
    charge: *const c_void,
    available: extern "C" fn(*const u64, *const u64, *const Instant) -> u64,
}
#[repr(C)]
pub struct Plugin {
    size: usize,
    kind: u32,
    parameters_n: u32,
    name: *const u8,
    version: *const u8,
    summary: *const u8,
    parameters: *const Parameter,
    ops: *const Algorithm,
    flags: u32,
    reserved: u32,
}
#[repr(C)]
pub struct Table {
    size: usize,
    abi_minor: u32,
    plugins_n: u32,
    plugins: *const *const Plugin,
    needs_minor: u32,
    flags: u32,
}
unsafe impl Sync for Parameter {}
unsafe impl Sync for Algorithm {}
unsafe impl Sync for Plugin {}
unsafe impl Sync for Table {}
#[repr(transparent)]
pub struct List(*const Plugin);
unsafe impl Sync for List {}

const BLOCKED: u64 = u64::MAX - 1;
const NEVER: u64 = u64::MAX;

extern "C" fn configure(
    setup: *const Setup,
    config: *mut u64,
    ret: *mut Footprint,
    _: *mut c_void,
) -> i32 {
    unsafe {
        let capacity = (**(*setup).values).value;
        (*ret).config = 8;
        (*ret).state = 8;
        (*ret).amount_max = capacity;
        if !config.is_null() {
            *config = capacity;
        }
    }
    0
}

extern "C" fn ready_at(config: *const u64, state: *const u64, at: *const Instant, n: u64) -> u64 {
    unsafe {
        match (n > *config, n > config.read().saturating_sub(*state)) {
            (true, _) => NEVER,
            (_, true) => BLOCKED,
            _ => (*at).now_ns,
        }
    }
}

extern "C" fn take(_: *const u64, state: *mut u64, _: *const Instant, n: u64) {
    unsafe { *state = (*state).wrapping_add(n) }
}

extern "C" fn available(config: *const u64, state: *const u64, _: *const Instant) -> u64 {
    unsafe { config.read().saturating_sub(*state) }
}

static ALGORITHM: Algorithm = Algorithm {
    size: core::mem::size_of::<Algorithm>(),
    types: 1 << 1 | 1 << 2,
    flags: 0,
    configure,
    init: core::ptr::null(),
    ready_at,
    take,
    refund: core::ptr::null(),
    charge: core::ptr::null(),
    available,
};
static CAPACITY: Parameter = Parameter {
    size: core::mem::size_of::<Parameter>(),
    name: b"capacity\0".as_ptr(),
    kind: 1,
    flags: 1,
    min: 1,
    max: i64::MAX as u64,
    default_value: 0,
    choices: core::ptr::null(),
    doc: b"units granted in all\0".as_ptr(),
};
static PLUGIN: Plugin = Plugin {
    size: core::mem::size_of::<Plugin>(),
    kind: 1,
    parameters_n: 1,
    name: b"rusty\0".as_ptr(),
    version: b"1.0\0".as_ptr(),
    summary: b"so many units in all\0".as_ptr(),
    parameters: &CAPACITY,
    ops: &ALGORITHM,
    flags: 0,
    reserved: 0,
};
static LIST: List = List(&PLUGIN);

#[no_mangle]
pub static weir_plugins_v1: Table = Table {
    size: core::mem::size_of::<Table>(),
    abi_minor: 4,
    plugins_n: 1,
    plugins: &LIST.0,
    needs_minor: 0,
    flags: 0,
};
