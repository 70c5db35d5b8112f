//! __NAME__: an algorithm for weir. It grants one unit each `interval` on average, up to `burst`
//! units at once, and leaves at least `gap` between two grants.
//!
//! This is the generic cell rate algorithm (ITU-T Recommendation I.371, annex A) with a gap. The
//! next unit is expected at the theoretical arrival time TAT, and units may be ahead of it by the
//! burst:
//!
//!     n is granted at t iff t >= next and max(TAT, t) + n * interval - t <= burst * interval;
//!     then TAT = max(TAT, t) + n * interval and next = t + gap.
//!
//! All values are whole nanoseconds, so nothing is rounded. There is no `std`: a plugin imports
//! nothing. The operations never panic: sums that could overflow for damaged bytes wrap.
#![no_std]

mod weir;

use core::ffi::c_void;
use core::mem::size_of;
use core::ptr;
use weir::*;

#[panic_handler]
fn panic(_: &core::panic::PanicInfo) -> ! {
    loop {}
}

const INTERVAL: usize = 0;
const BURST: usize = 1;
const GAP: usize = 2;

/// So that no sum of instants overflows before the end of the clock: 36 years.
const LONGEST_NS: u64 = 1 << 60;

static PARAMETERS: [Parameter; 3] = [
    Parameter {
        size: size_of::<Parameter>(),
        name: b"interval\0".as_ptr(),
        type_: PARAMETER_DURATION,
        flags: PARAMETER_REQUIRED,
        min: 1,
        max: LONGEST_NS,
        default_value: 0,
        choices: ptr::null(),
        doc: b"time in which one unit comes\0".as_ptr(),
    },
    Parameter {
        size: size_of::<Parameter>(),
        name: b"burst\0".as_ptr(),
        type_: PARAMETER_AMOUNT,
        flags: 0,
        min: 1,
        max: LONGEST_NS,
        default_value: 1,
        choices: ptr::null(),
        doc: b"units that may come at once; default 1\0".as_ptr(),
    },
    Parameter {
        size: size_of::<Parameter>(),
        name: b"gap\0".as_ptr(),
        type_: PARAMETER_DURATION,
        flags: 0,
        min: 0,
        max: LONGEST_NS,
        default_value: 0,
        choices: ptr::null(),
        doc: b"least time between two grants; default: none\0".as_ptr(),
    },
];

#[repr(C)]
struct Config {
    interval_ns: u64,
    burst: u64,
    gap_ns: u64,
    full_ns: u64, // burst * interval
}

#[repr(C)]
struct State {
    tat_ns: u64,  // the theoretical arrival time; in the past: all of the burst is there
    next_ns: u64, // the end of the gap
}

impl Config {
    fn cost_ns(&self, amount: u64) -> u64 {
        amount.wrapping_mul(self.interval_ns)
    }
}

impl State {
    /// Returns how far TAT is ahead of `now`: the time after which all of the burst is there.
    fn ahead_of(&self, now: u64) -> u64 {
        self.tat_ns.saturating_sub(now)
    }

    fn ready_at(&self, config: &Config, now: u64, amount: u64) -> u64 {
        if amount > config.burst {
            return NEVER;
        }
        let cost = config.cost_ns(amount);
        let spare = config.full_ns.wrapping_sub(cost);
        let ready = now.max(self.next_ns).max(self.tat_ns.saturating_sub(spare));
        if self.tat_ns.max(ready) > INSTANT_MAX - cost.min(INSTANT_MAX) {
            // TAT would not exist
            return if now < INSTANT_MAX { INSTANT_MAX } else { NEVER };
        }
        ready
    }

    fn take(&mut self, config: &Config, now: u64, amount: u64) {
        self.tat_ns = self.tat_ns.max(now).wrapping_add(config.cost_ns(amount));
        self.next_ns = after(now, config.gap_ns);
    }

    /// Moves TAT back, at most to `now`: more than the burst is never there. The gap stays.
    fn give_back(&mut self, now: u64, back_ns: u64) {
        self.tat_ns -= back_ns.min(self.ahead_of(now));
    }
}

/// Returns the instant `wait_ns` after another one, or the last instant that there is.
fn after(instant: u64, wait_ns: u64) -> u64 {
    instant.saturating_add(wait_ns).min(INSTANT_MAX)
}

/// Makes references of the pointers that the library gives to operations.
unsafe fn given<'a>(
    bytes: *const c_void,
    memory: *const c_void,
    at: *const Instant,
) -> (&'a Config, &'a State, u64) {
    (&*bytes.cast(), &*memory.cast(), (*at).now_ns)
}

unsafe fn given_mut<'a>(
    bytes: *const c_void,
    memory: *mut c_void,
    at: *const Instant,
) -> (&'a Config, &'a mut State, u64) {
    (&*bytes.cast(), &mut *memory.cast(), (*at).now_ns)
}

unsafe extern "C" fn configure(
    setup: *const Setup,
    bytes: *mut c_void,
    ret: *mut Footprint,
    reterr: *mut Reason,
) -> i32 {
    const TOO_LONG: &[u8] = b"times `interval` is more than 36 years: make one of them less\0";
    let value = |index| (**(*setup).values.add(index)).value;
    let (interval_ns, burst) = (value(INTERVAL), value(BURST));
    let full_ns = match burst.checked_mul(interval_ns) {
        Some(full_ns) if full_ns <= LONGEST_NS => full_ns,
        _ => {
            let message = ptr::addr_of_mut!((*reterr).message).cast::<u8>();
            (*reterr).parameter = BURST as u32;
            ptr::copy_nonoverlapping(TOO_LONG.as_ptr(), message, TOO_LONG.len());
            return -1;
        }
    };
    (*ret).config = size_of::<Config>() as u64;
    (*ret).state = size_of::<State>() as u64;
    (*ret).amount_max = burst;
    if !bytes.is_null() {
        bytes.cast::<Config>().write(Config { interval_ns, burst, gap_ns: value(GAP), full_ns });
    }
    0
}

unsafe extern "C" fn ready_at(
    bytes: *const c_void,
    memory: *const c_void,
    at: *const Instant,
    amount: u64,
) -> u64 {
    let (config, state, now) = given(bytes, memory, at);
    state.ready_at(config, now, amount)
}

unsafe extern "C" fn take(
    bytes: *const c_void,
    memory: *mut c_void,
    at: *const Instant,
    amount: u64,
) {
    let (config, state, now) = given_mut(bytes, memory, at);
    state.take(config, now, amount);
}

unsafe extern "C" fn try_take(
    bytes: *const c_void,
    memory: *mut c_void,
    at: *const Instant,
    amount: u64,
) -> u64 {
    let (config, state, now) = given_mut(bytes, memory, at);
    let ready = state.ready_at(config, now, amount);
    if ready == now {
        state.take(config, now, amount);
    }
    ready
}

unsafe extern "C" fn available(
    bytes: *const c_void,
    memory: *const c_void,
    at: *const Instant,
) -> u64 {
    let (config, state, now) = given(bytes, memory, at);
    let room = INSTANT_MAX.saturating_sub(now).min(config.full_ns);
    if state.next_ns > now {
        return 0;
    }
    room.saturating_sub(state.ahead_of(now)).checked_div(config.interval_ns).unwrap_or(0)
}

unsafe extern "C" fn refund(
    bytes: *const c_void,
    memory: *mut c_void,
    at: *const Instant,
    amount: u64,
    _granted_ns: u64,
) {
    let (config, state, now) = given_mut(bytes, memory, at);
    state.give_back(now, config.cost_ns(amount));
}

/// Gives back less by the time since the grant, in which the units would have come anyway.
unsafe extern "C" fn refund_strict(
    bytes: *const c_void,
    memory: *mut c_void,
    at: *const Instant,
    amount: u64,
    granted_ns: u64,
) {
    let (config, state, now) = given_mut(bytes, memory, at);
    let since = now.saturating_sub(granted_ns);
    state.give_back(now, config.cost_ns(amount).saturating_sub(since));
}

/// Moves TAT on, at most to two bursts from now: then the debt is one burst.
unsafe extern "C" fn charge(
    bytes: *const c_void,
    memory: *mut c_void,
    at: *const Instant,
    amount: u64,
) {
    let (config, state, now) = given_mut(bytes, memory, at);
    let room = config.full_ns.wrapping_mul(2).saturating_sub(state.ahead_of(now));
    let owed = amount.saturating_mul(config.interval_ns);
    state.tat_ns = after(state.tat_ns.max(now), owed.min(room));
}

/// Returns whether the bytes can be a state. Another process may have written anything there.
unsafe extern "C" fn check(_: *const c_void, memory: *const c_void) -> i32 {
    let state: &State = &*memory.cast();
    if state.tat_ns.max(state.next_ns) <= INSTANT_MAX {
        0
    } else {
        -1
    }
}

unsafe extern "C" fn is_new(
    bytes: *const c_void,
    memory: *const c_void,
    at: *const Instant,
) -> i32 {
    let (_, state, now) = given(bytes, memory, at);
    (state.tat_ns.max(state.next_ns) <= now) as i32
}

static GAUGES: [Gauge; 1] = [Gauge {
    size: size_of::<Gauge>(),
    name: b"recovery\0".as_ptr(),
    doc: b"time until all of the burst is there\0".as_ptr(),
    type_: PARAMETER_DURATION,
    flags: 0,
}];

unsafe extern "C" fn observe(
    bytes: *const c_void,
    memory: *const c_void,
    at: *const Instant,
    ret: *mut u64,
) {
    let (_, state, now) = given(bytes, memory, at);
    *ret = state.ahead_of(now);
}

static ALGORITHM: Algorithm = Algorithm {
    size: size_of::<Algorithm>(),
    types: 1 << LIMIT_RATE | 1 << LIMIT_CALL,
    flags: ALGORITHM_REFUNDS | ALGORITHM_MONOTONE,
    configure: Some(configure),
    init: None,
    ready_at: Some(ready_at),
    take: Some(take),
    refund: Some(refund),
    charge: Some(charge),
    available: Some(available),
    release: None,
    reconfigure: None,
    migrate: None,
    check: Some(check),
    try_take: Some(try_take),
    is_new: Some(is_new),
    refund_strict: Some(refund_strict),
    gauges: GAUGES.as_ptr(),
    gauges_n: 1,
    reserved: 0,
    observe: Some(observe),
};

static PLUGIN: Plugin = Plugin {
    size: size_of::<Plugin>(),
    kind: PLUGIN_ALGORITHM,
    parameters_n: 3,
    name: b"__NAME__\0".as_ptr(),
    version: b"0.1\0".as_ptr(),
    summary: b"one unit each interval, some at once, and a gap between grants\0".as_ptr(),
    parameters: PARAMETERS.as_ptr(),
    ops: &ALGORITHM as *const Algorithm as *const c_void,
    flags: 0,
    reserved: 0,
    state_id: __STATE_ID__, // a new one for each change of Config or State
};

static PLUGINS: PluginList<1> = PluginList([&PLUGIN]);

#[allow(non_upper_case_globals)]
#[no_mangle]
pub static weir_plugins_v1: PluginTable = PluginTable {
    size: size_of::<PluginTable>(),
    abi_minor: ABI_MINOR,
    plugins_n: 1,
    plugins: PLUGINS.0.as_ptr(),
    needs_minor: 0,
    flags: 0,
};
