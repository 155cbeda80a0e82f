//! [`Workload`]: a trace made ready for fast replay.

use std::collections::{HashMap, HashSet};

use pindown_core::trace::{Event, Op};
use pindown_core::{Access, PAGE_SHIFT, PageRange};

/// What a registration is expected to cost where the trace does not say.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CostModel {
    /// For any registration, in nanoseconds.
    pub fixed_ns: f64,
    /// For each byte, in nanoseconds.
    pub per_byte_ns: f64,
}

impl Default for CostModel {
    /// 16 µs + 0.08 ns/B: between UCX's model and bulk pinning of DRAM.
    fn default() -> Self {
        Self { fixed_ns: 16_000.0, per_byte_ns: 0.08 }
    }
}

impl CostModel {
    /// Cost of registering so many bytes, in nanoseconds.
    pub fn cost_ns(&self, bytes: u64) -> u64 {
        (self.fixed_ns + self.per_byte_ns * bytes as f64).max(1.0) as u64
    }

    /// Least squares over measured `(bytes, ns)`; the default below 8 samples of two sizes.
    pub fn fitted(samples: &[(u64, u64)]) -> Self {
        let n = samples.len() as f64;
        let mean = |f: &dyn Fn(&(u64, u64)) -> f64| samples.iter().map(f).sum::<f64>() / n;
        let (mx, my) = (mean(&|s| s.0 as f64), mean(&|s| s.1 as f64));
        let sxx = mean(&|s| (s.0 as f64 - mx).powi(2));
        let sxy = mean(&|s| (s.0 as f64 - mx) * (s.1 as f64 - my));
        if samples.len() < 8 || sxx < 1.0 {
            return Self::default();
        }
        let per_byte_ns = (sxy / sxx).max(0.0);
        Self { fixed_ns: (my - per_byte_ns * mx).max(0.0), per_byte_ns }
    }
}

/// One thing that is registered: a distinct page range and rights.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Object {
    /// Its pages.
    pub range: PageRange,
    /// Rights.
    pub access: Access,
    /// Cost of one registration, in nanoseconds: the mean of those measured, or the model's.
    pub cost_ns: u64,
    /// Objects of one class contain each other; the bound treats them as one.
    pub class: u32,
}

/// One step of the replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Acquired and put at once.
    Use(u32),
    Acquire(u32),
    Put(u32),
    /// Index of a list of objects.
    Invalidate(u32),
}

/// A trace made ready: requests resolved to objects, changes to lists of them.
#[derive(Clone, Debug)]
pub struct Workload {
    /// All that was ever asked for.
    pub objects: Vec<Object>,
    /// Number of events of the trace.
    pub events: u64,
    pub(crate) steps: Vec<Step>,
    /// By invalidation: the objects it touches.
    pub(crate) touched: Vec<Vec<u32>>,
    /// By object: others whose registration serves it too, smallest first.
    pub(crate) covers: Vec<Vec<u32>>,
    /// Classes of more than one object.
    pub(crate) shared_classes: HashSet<u32>,
    /// Acquisitions that are not of this address space.
    pub skipped: u64,
    /// The model behind unmeasured costs.
    pub model: CostModel,
}

/// How many larger registrations of an object are looked through.
const MAX_COVERS: usize = 16;

impl Workload {
    /// Compiles a trace. `model`: costs where none were measured; `None`: fitted to those that were.
    pub fn compile(trace: &[Event], model: Option<CostModel>) -> Self {
        let mut builder = Builder::default();
        builder.collect(trace);
        let model = model.unwrap_or_else(|| CostModel::fitted(&builder.samples));
        builder.price(&model);
        let index = Index::new(&builder.objects);
        let covers = index.covers(&builder.objects);
        let mut objects = builder.objects;
        assign_classes(&mut objects, &covers);
        let shared = objects.iter().enumerate().filter(|(at, o)| o.class as usize != *at);
        let shared_classes = shared.map(|(_, o)| o.class).collect();
        let touched = builder.changes.iter().map(|r| index.touching(&objects, *r)).collect();
        Self {
            objects,
            events: trace.len() as u64,
            steps: builder.steps,
            touched,
            covers,
            shared_classes,
            skipped: builder.skipped,
            model,
        }
    }

    /// Bytes of all classes, each counted once by its largest.
    pub fn footprint_bytes(&self) -> u64 {
        self.by_class(|o| o.range.len_bytes() as u64)
    }

    /// Number of distinct things registered.
    pub fn footprint_regions(&self) -> u64 {
        self.by_class(|_| 1)
    }

    fn by_class(&self, f: impl Fn(&Object) -> u64) -> u64 {
        let mut most: HashMap<u32, u64> = HashMap::new();
        for object in &self.objects {
            let entry = most.entry(object.class).or_default();
            *entry = f(object).max(*entry);
        }
        most.values().sum()
    }

    /// Number of requests.
    pub fn requests(&self) -> u64 {
        self.steps.iter().filter(|s| matches!(s, Step::Use(_) | Step::Acquire(_))).count() as u64
    }
}

#[derive(Default)]
struct Builder {
    objects: Vec<Object>,
    names: HashMap<(PageRange, u8), u32>,
    held: HashMap<u64, (u32, usize)>,
    steps: Vec<Step>,
    changes: Vec<PageRange>,
    change_names: HashMap<PageRange, u32>,
    samples: Vec<(u64, u64)>,
    measured: HashMap<u32, (u64, u64)>,
    skipped: u64,
}

impl Builder {
    fn collect(&mut self, trace: &[Event]) {
        for event in trace {
            match event.op {
                Op::Acquire { id, addr, len, access } => self.acquire(id, addr, len, access),
                Op::Put { id } => self.put(id),
                Op::Invalidate { addr, len } => self.invalidate(addr, len),
                Op::Registered { id, cost_ns } => self.registered(id, cost_ns),
            }
        }
        self.settle();
    }

    fn acquire(&mut self, id: u64, addr: u64, len: u64, access: Access) {
        let Ok(range) = PageRange::covering(addr as usize, len as usize) else {
            self.skipped += 1;
            return;
        };
        let next = self.objects.len() as u32;
        let object = *self.names.entry((range, access.bits())).or_insert(next);
        if object == next {
            self.objects.push(Object { range, access, cost_ns: 0, class: next });
        }
        self.held.insert(id, (object, self.steps.len()));
        self.steps.push(Step::Acquire(object));
    }

    fn put(&mut self, id: u64) {
        let Some((object, at)) = self.held.remove(&id) else { return };
        if at + 1 == self.steps.len() {
            self.steps[at] = Step::Use(object);
        } else {
            self.steps.push(Step::Put(object));
        }
    }

    fn invalidate(&mut self, addr: u64, len: u64) {
        let Some(range) = PageRange::clipped(addr as usize, len as usize) else { return };
        let next = self.changes.len() as u32;
        let change = *self.change_names.entry(range).or_insert(next);
        if change == next {
            self.changes.push(range);
        }
        self.steps.push(Step::Invalidate(change));
    }

    fn registered(&mut self, id: u64, cost_ns: u64) {
        let Some((object, _)) = self.held.get(&id) else { return };
        self.samples.push((self.objects[*object as usize].range.len_bytes() as u64, cost_ns));
        let sum = self.measured.entry(*object).or_default();
        *sum = (sum.0 + cost_ns, sum.1 + 1);
    }

    /// What is never put was recorded without its end: it holds nothing back.
    fn settle(&mut self) {
        for (object, at) in self.held.values() {
            self.steps[*at] = Step::Use(*object);
        }
    }

    fn price(&mut self, model: &CostModel) {
        for (at, object) in self.objects.iter_mut().enumerate() {
            let measured = self.measured.get(&(at as u32)).map(|(sum, n)| (sum / n).max(1));
            object.cost_ns = measured.unwrap_or_else(|| model.cost_ns(object.range.len_bytes() as u64));
        }
    }
}

/// Objects by start address.
struct Index {
    order: Vec<u32>,
    longest: usize,
}

impl Index {
    fn new(objects: &[Object]) -> Self {
        let mut order: Vec<_> = (0..objects.len() as u32).collect();
        order.sort_by_key(|o| objects[*o as usize].range.start());
        let longest = objects.iter().map(|o| o.range.len_bytes()).max().unwrap_or(0);
        Self { order, longest }
    }

    fn touching(&self, objects: &[Object], range: PageRange) -> Vec<u32> {
        let start = |o: &u32| objects[*o as usize].range.start();
        let first = self.order.partition_point(|o| start(o) + self.longest <= range.start());
        let near = self.order[first..].iter().take_while(|o| start(o) < range.end());
        near.copied().filter(|o| objects[*o as usize].range.intersection(range).is_some()).collect()
    }

    fn covers(&self, objects: &[Object]) -> Vec<Vec<u32>> {
        let of = |at: usize| {
            let own = &objects[at];
            let mut found = self.touching(objects, own.range);
            found.retain(|o| *o as usize != at && serves(&objects[*o as usize], own));
            found.sort_by_key(|o| objects[*o as usize].range.len_bytes());
            found.truncate(MAX_COVERS);
            found
        };
        (0..objects.len()).map(of).collect()
    }
}

fn serves(by: &Object, wanted: &Object) -> bool {
    let inside = by.range.intersection(wanted.range) == Some(wanted.range);
    inside && by.access.serves(wanted.access)
}

fn assign_classes(objects: &mut [Object], covers: &[Vec<u32>]) {
    let mut parent: Vec<u32> = (0..objects.len() as u32).collect();
    fn root(parent: &mut [u32], mut o: u32) -> u32 {
        while parent[o as usize] != o {
            parent[o as usize] = parent[parent[o as usize] as usize];
            o = parent[o as usize];
        }
        o
    }
    for (object, over) in covers.iter().enumerate() {
        for cover in over {
            let (a, b) = (root(&mut parent, object as u32), root(&mut parent, *cover));
            parent[a as usize] = b;
        }
    }
    for (at, object) in objects.iter_mut().enumerate() {
        object.class = root(&mut parent, at as u32);
    }
}

/// Pages of an object.
pub(crate) fn pages(object: &Object) -> u64 {
    (object.range.len_bytes() >> PAGE_SHIFT) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn acquire(id: u64, addr: u64, len: u64) -> Event {
        Event { t_ns: 0, op: Op::Acquire { id, addr, len, access: Access::READ_WRITE } }
    }

    fn event(op: Op) -> Event {
        Event { t_ns: 0, op }
    }

    #[test]
    fn requests_round_to_pages_and_changes_find_what_they_touch() {
        let w = Workload::compile(
            &[
                acquire(1, 0x10_0010, 16),
                event(Op::Put { id: 1 }),
                acquire(2, 0x10_0800, 1),
                acquire(3, 0x20_0000, 0x4000),
                event(Op::Put { id: 2 }),
                event(Op::Invalidate { addr: 0x20_3000, len: 1 }),
                acquire(4, 0, 0),
            ],
            None,
        );
        assert_eq!(w.objects.len(), 2);
        let expected = [Step::Use(0), Step::Acquire(0), Step::Use(1), Step::Put(0), Step::Invalidate(0)];
        assert_eq!(w.steps, expected, "what is put at once is one step; what is never put holds nothing");
        assert_eq!(w.touched, [vec![1]]);
        assert_eq!((w.skipped, w.footprint_bytes()), (1, 5 << 12));
    }

    #[test]
    fn containing_objects_serve_and_share_a_class() {
        let w = Workload::compile(&[acquire(1, 0x1000, 0x8000), acquire(2, 0x2000, 0x1000)], None);
        assert_eq!(w.covers, [vec![], vec![0]]);
        assert_eq!(w.footprint_regions(), 1);
    }

    #[test]
    fn costs_are_measured_or_fitted() {
        let mut trace = Vec::new();
        for id in 0..16 {
            let len = (id + 1) << 16;
            trace.push(acquire(id, id << 30 | 1 << 29, len));
            trace.push(event(Op::Registered { id, cost_ns: 5000 + len / 4 }));
        }
        trace.push(acquire(99, 1 << 40, 1 << 20));
        let w = Workload::compile(&trace, None);
        assert!((w.model.fixed_ns - 5000.0).abs() < 1.0 && (w.model.per_byte_ns - 0.25).abs() < 1e-6);
        assert_eq!(w.objects[0].cost_ns, 5000 + (1 << 14));
        assert!(w.objects[16].cost_ns.abs_diff(5000 + (1 << 18)) < 2);
    }
}
