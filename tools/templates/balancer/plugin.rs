//! __NAME__: a balancer for weir. It picks the cheapest set that grants now; if none does, the one
//! that would grant first. What a set costs is a parameter of each set. Sets of equal cost take
//! turns at random.
//!
//! It looks at one set after the other, the cheapest first, and no further than it has to. There is
//! no `std`: a plugin imports nothing.
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

const COST: usize = 0;

static PARAMETERS: [Parameter; 1] = [Parameter {
    size: size_of::<Parameter>(),
    name: b"cost\0".as_ptr(),
    type_: PARAMETER_AMOUNT,
    flags: PARAMETER_PER_SET,
    min: 0,
    max: i64::MAX as u64,
    default_value: 0,
    choices: ptr::null(),
    doc: b"what a request costs in the set; default 0\0".as_ptr(),
}];

/// The configuration: one place for each set, the cheapest first.
#[repr(C)]
struct Place {
    set: u32,
    first: u32,  // of the places of equal cost, the first one,
    equals: u32, // and how many there are
    unused: u32, // 0: no byte is left undefined
}

unsafe fn cost_of(setup: *const Setup, set: u32) -> u64 {
    let values = match (*setup).sets.is_null() {
        true => (*setup).values,
        false => (**(*setup).sets.add(set as usize)).values,
    };
    (**values.add(COST)).value
}

/// Sorts the sets by cost. Of equal ones the first of the pool comes first.
unsafe fn sort(setup: *const Setup, places: *mut Place) {
    for set in 0..(*setup).sets_n {
        let mut at = set as usize;
        while at > 0 && cost_of(setup, (*places.add(at - 1)).set) > cost_of(setup, set) {
            (*places.add(at)).set = (*places.add(at - 1)).set;
            at -= 1;
        }
        (*places.add(at)).set = set;
    }
}

/// Fills where the places of equal cost begin, and how many there are.
unsafe fn group(setup: *const Setup, places: *mut Place) {
    let cost_at = |i: u32| cost_of(setup, (*places.add(i as usize)).set);
    let (n, mut first) = ((*setup).sets_n, 0);
    while first < n {
        let mut end = first + 1;
        while end < n && cost_at(end) == cost_at(first) {
            end += 1;
        }
        for i in first..end {
            let place = places.add(i as usize);
            (*place).first = first;
            (*place).equals = end - first;
        }
        first = end;
    }
}

unsafe extern "C" fn configure(
    setup: *const Setup,
    bytes: *mut c_void,
    ret: *mut Footprint,
    _: *mut Reason,
) -> i32 {
    (*ret).config = (*setup).sets_n as u64 * size_of::<Place>() as u64;
    (*ret).state = 0;
    if !bytes.is_null() {
        sort(setup, bytes.cast());
        group(setup, bytes.cast());
    }
    0
}

unsafe fn view_of<'a>(request: &Pick, set: u32) -> &'a SetView {
    let views = request.views.cast::<u8>();
    &*views.add(set as usize * request.view_size).cast()
}

/// Returns the set that is asked as the i-th. `random` is the same at each call for one pick.
unsafe fn set_at(places: *const Place, i: u32, random: u64) -> u32 {
    let place = &*places.add(i as usize);
    let turned = (u64::from(i - place.first) + random).checked_rem(u64::from(place.equals));
    (*places.add(place.first as usize + turned.unwrap_or(0) as usize)).set
}

unsafe extern "C" fn pick(bytes: *const c_void, _: *mut c_void, request: *const Pick) -> u32 {
    let request = &*request;
    let random = request.random >> 32; // so that no sum overflows
    let (mut best, mut soonest) = (PICK_NONE, 0);
    for i in 0..request.sets_n {
        let set = set_at(bytes.cast(), i, random);
        let view = view_of(request, set);
        if view.flags & VIEW_TRIED != 0 {
            continue;
        }
        if view.flags & VIEW_LIVE == 0 {
            return set | PICK_LOOK;
        }
        if view.ready_at_ns <= request.now_ns {
            return set;
        }
        if best == PICK_NONE || view.ready_at_ns < soonest {
            best = set;
            soonest = view.ready_at_ns;
        }
    }
    best
}

static BALANCER: Balancer = Balancer {
    size: size_of::<Balancer>(),
    flags: BALANCER_LOOKS | BALANCER_RANKS,
    reserved: 0,
    configure: Some(configure),
    init: None,
    pick: Some(pick),
    outcome: None,
};

static PLUGIN: Plugin = Plugin {
    size: size_of::<Plugin>(),
    kind: PLUGIN_BALANCER,
    parameters_n: 1,
    name: b"__NAME__\0".as_ptr(),
    version: b"0.1\0".as_ptr(),
    summary: b"the cheapest set that grants now, or else the one that grants first\0".as_ptr(),
    parameters: PARAMETERS.as_ptr(),
    ops: &BALANCER as *const Balancer as *const c_void,
    flags: 0,
    reserved: 0,
    state_id: __STATE_ID__, // a new one for each change of Place
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
