//! The structs of weir/plugin.h, weir/algorithm.h and weir/balancer.h. The headers say what each
//! field means. `make check` compares sizes and offsets with those of the installed headers.
#![allow(dead_code)]

use core::ffi::c_void;

pub const ABI_MINOR: u32 = 4;

pub const PLUGIN_ALGORITHM: u32 = 1;
pub const PLUGIN_BALANCER: u32 = 2;

pub const PARAMETER_AMOUNT: u32 = 1;
pub const PARAMETER_DURATION: u32 = 2;
pub const PARAMETER_BOOLEAN: u32 = 3;
pub const PARAMETER_CHOICE: u32 = 4;
pub const PARAMETER_TEXT: u32 = 5;
pub const PARAMETER_RATIO: u32 = 6;
pub const PARAMETER_SIZE: u32 = 7;
pub const PARAMETER_ZONE: u32 = 8;

pub const PARAMETER_REQUIRED: u32 = 1 << 0;
pub const PARAMETER_DIVISIBLE: u32 = 1 << 1;
pub const PARAMETER_LIST: u32 = 1 << 16;
pub const PARAMETER_PER_SET: u32 = 1 << 18;

pub const LIMIT_RATE: u32 = 1;
pub const LIMIT_CALL: u32 = 2;
pub const LIMIT_RESOURCE: u32 = 3;

pub const NEVER: u64 = u64::MAX;
pub const BLOCKED: u64 = u64::MAX - 1;
pub const INSTANT_MAX: u64 = u64::MAX - 2;
pub const CLOCK_MAX: u64 = (3 << 61) - 1;

pub const ALGORITHM_REFUNDS: u32 = 1 << 0;
pub const ALGORITHM_WALL: u32 = 1 << 1;
pub const ALGORITHM_WORD: u32 = 1 << 2;
pub const ALGORITHM_MONOTONE: u32 = 1 << 3;

pub const VIEW_LIVE: u32 = 1 << 0;
pub const VIEW_TRIED: u32 = 1 << 1;

pub const BALANCER_VIEWS: u32 = 1 << 0;
pub const BALANCER_LOOKS: u32 = 1 << 1;
pub const BALANCER_RANKS: u32 = 1 << 2;

pub const PICK_LOOK: u32 = 1 << 31;
pub const PICK_NONE: u32 = u32::MAX;

/// A text of a constant: UTF-8 that ends with a NUL, or null.
pub type Text = *const u8;

#[repr(C)]
pub struct Parameter {
    pub size: usize,
    pub name: Text,
    pub type_: u32,
    pub flags: u32,
    pub min: u64,
    pub max: u64,
    pub default_value: u64,
    pub choices: *const Text,
    pub doc: Text,
}

#[repr(C)]
pub struct Value {
    pub size: usize,
    pub value: u64,
    pub text: Text,
    pub given: u32,
    pub items_n: u32,
    pub items: *const *const Value,
    pub zone: *const c_void,
}

#[repr(C)]
pub struct SetSetup {
    pub size: usize,
    pub name: Text,
    pub weight: u64,
    pub values: *const *const Value,
}

#[repr(C)]
pub struct Setup {
    pub size: usize,
    pub abi_minor: u32,
    pub values_n: u32,
    pub limit_type: u32,
    pub sets_n: u32,
    pub values: *const *const Value,
    pub sets: *const *const SetSetup,
}

#[repr(C)]
pub struct Reason {
    pub size: usize,
    pub parameter: u32,
    pub message: [u8; 252],
}

#[repr(C)]
pub struct Footprint {
    pub size: usize,
    pub config: u64,
    pub state: u64,
    pub amount_max: u64,
    pub flags: u32,
    pub reserved: u32,
}

#[repr(C)]
pub struct Plugin {
    pub size: usize,
    pub kind: u32,
    pub parameters_n: u32,
    pub name: Text,
    pub version: Text,
    pub summary: Text,
    pub parameters: *const Parameter,
    pub ops: *const c_void,
    pub flags: u32,
    pub reserved: u32,
    pub state_id: u64,
}

#[repr(C)]
pub struct PluginTable {
    pub size: usize,
    pub abi_minor: u32,
    pub plugins_n: u32,
    pub plugins: *const *const Plugin,
    pub needs_minor: u32,
    pub flags: u32,
}

/// Never copied whole: it may grow at its end.
#[repr(C)]
pub struct Instant {
    pub now_ns: u64,
    pub wall_offset_ns: i64,
}

#[repr(C)]
pub struct Release {
    pub size: usize,
    pub amount: u64,
    pub granted_ns: u64,
    pub latency_ns: u64,
    pub outcome: u32,
    pub reserved: u32,
}

#[repr(C)]
pub struct Gauge {
    pub size: usize,
    pub name: Text,
    pub doc: Text,
    pub type_: u32,
    pub flags: u32,
}

pub type Configure =
    unsafe extern "C" fn(*const Setup, *mut c_void, *mut Footprint, *mut Reason) -> i32;
pub type Look = unsafe extern "C" fn(*const c_void, *const c_void, *const Instant) -> u64;
pub type Ask = unsafe extern "C" fn(*const c_void, *const c_void, *const Instant, u64) -> u64;
pub type Change = unsafe extern "C" fn(*const c_void, *mut c_void, *const Instant, u64);
pub type Refund = unsafe extern "C" fn(*const c_void, *mut c_void, *const Instant, u64, u64);
pub type Migrate = unsafe extern "C" fn(
    Text,
    *const c_void,
    usize,
    *const c_void,
    *mut c_void,
    *const Instant,
) -> i32;
pub type Reconfigure =
    unsafe extern "C" fn(*const c_void, *const c_void, *const c_void, *mut c_void, *const Instant);

#[repr(C)]
pub struct Algorithm {
    pub size: usize,
    pub types: u32,
    pub flags: u32,
    pub configure: Option<Configure>,
    pub init: Option<unsafe extern "C" fn(*const c_void, *mut c_void, *const Instant)>,
    pub ready_at: Option<Ask>,
    pub take: Option<Change>,
    pub refund: Option<Refund>,
    pub charge: Option<Change>,
    pub available: Option<Look>,
    pub release:
        Option<unsafe extern "C" fn(*const c_void, *mut c_void, *const Instant, *const Release)>,
    pub reconfigure: Option<Reconfigure>,
    pub migrate: Option<Migrate>,
    pub check: Option<unsafe extern "C" fn(*const c_void, *const c_void) -> i32>,
    pub try_take:
        Option<unsafe extern "C" fn(*const c_void, *mut c_void, *const Instant, u64) -> u64>,
    pub is_new: Option<unsafe extern "C" fn(*const c_void, *const c_void, *const Instant) -> i32>,
    pub refund_strict: Option<Refund>,
    pub gauges: *const Gauge,
    pub gauges_n: u32,
    pub reserved: u32,
    pub observe:
        Option<unsafe extern "C" fn(*const c_void, *const c_void, *const Instant, *mut u64)>,
}

#[repr(C)]
pub struct SetView {
    pub held: u64,
    pub waiting: u64,
    pub ready_at_ns: u64,
    pub id: u64,
    pub weight: u64,
    pub capacity: u64,
    pub available: u64,
    pub flags: u32,
    pub reserved: u32,
}

#[repr(C)]
pub struct Pick {
    pub size: usize,
    pub now_ns: u64,
    pub random: u64,
    pub route: u64,
    pub worker: u32,
    pub sets_n: u32,
    pub views: *const SetView,
    pub view_size: usize,
    pub attempt: u32,
    pub reserved: u32,
}

#[repr(C)]
pub struct PickOutcome {
    pub size: usize,
    pub now_ns: u64,
    pub retry_after_ns: u64,
    pub index: u32,
    pub result: i32,
}

#[repr(C)]
pub struct Balancer {
    pub size: usize,
    pub flags: u32,
    pub reserved: u32,
    pub configure: Option<Configure>,
    pub init: Option<unsafe extern "C" fn(*const c_void, *mut c_void, *const Pick)>,
    pub pick: Option<unsafe extern "C" fn(*const c_void, *mut c_void, *const Pick) -> u32>,
    pub outcome: Option<unsafe extern "C" fn(*const c_void, *mut c_void, *const PickOutcome)>,
}

/// A list of plugins, as the table has it.
#[repr(transparent)]
pub struct PluginList<const N: usize>(pub [*const Plugin; N]);

// What is shared is constant, all of it: the pointers lead to other constants.
unsafe impl Sync for Parameter {}
unsafe impl Sync for Gauge {}
unsafe impl Sync for Algorithm {}
unsafe impl Sync for Balancer {}
unsafe impl Sync for Plugin {}
unsafe impl Sync for PluginTable {}
unsafe impl<const N: usize> Sync for PluginList<N> {}
