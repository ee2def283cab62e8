//! Methods: the ways in which a suite measures, each with its factors, metrics and probe.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::artefact::Recipe;
use crate::factor::{Factor, LevelType};
use crate::guest::Guest;
use crate::measure::{Context, Measurement};
use crate::metric::Metric;
use crate::point::Point;
use crate::sample::Failure;

pub use lab_derive::Params;

/// The levels of one point, parsed: a struct with one field per factor of a method. Derive it.
pub trait Params: Sized + 'static {
    /// The factors, in the order of the fields.
    const FACTORS: &'static [Factor];

    /// Parses a point that names every factor.
    ///
    /// # Errors
    /// Returns `failed` if a factor is missing or a level is not one of its type.
    fn from_point(point: &Point) -> Result<Self, Failure>;

    /// Parses a point; the factors that it does not name take their defaults.
    ///
    /// # Errors
    /// As [`from_point`](Self::from_point).
    fn with_defaults(point: &Point) -> Result<Self, Failure> {
        Self::from_point(&complete(Self::FACTORS, point))
    }
}

/// Parses the level of one factor.
///
/// # Errors
/// Returns `failed` if the point has no such factor, or the level is not a level of the factor or of the type.
pub fn level<T: LevelType>(point: &Point, factor: &Factor) -> Result<T, Failure> {
    let name = factor.name;
    let level = point
        .get(name)
        .ok_or_else(|| Failure::failed(format!("the point has no factor '{name}'")))?;
    let level = factor.level(level.as_str()).map_err(Failure::failed)?;
    T::from_level(level.as_str())
        .ok_or_else(|| Failure::failed(format!("factor '{name}': unknown level '{level}'")))
}

/// Returns a point with the defaults of the factors that it does not name.
#[must_use]
pub fn complete(factors: &[Factor], point: &Point) -> Point {
    let missing = factors.iter().filter(|factor| point.get(factor.name).is_none());
    let defaults = missing.map(|factor| (factor.name, factor.default));
    defaults.fold(point.clone(), |point, (name, level)| point.with(name, level))
}

/// A program within this program that a point executes in a place of its own, e.g. in an enclave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EmbeddedImage {
    /// Its name, of letters, digits and `-`: `dlmalloc`.
    pub name: &'static str,
    /// Its ELF file, with symbols.
    pub file: &'static [u8],
    /// Starts of the names of its timed functions: `inside::`.
    pub timed: &'static [&'static str],
}

/// One way in which a suite measures.
pub trait Method: Sync {
    /// The parsed levels of a point.
    type Params: Params;

    /// Returns the name in TOML: `throughput`.
    fn name(&self) -> &'static str;

    /// States how a sample is timed, and how its result is verified: two sentences for pages and `explain`.
    fn how(&self) -> &'static str;

    /// Returns the metrics that its samples may contain.
    fn metrics(&self) -> &'static [Metric];

    /// Checks whether this machine can measure a point: cheap and without side effects.
    ///
    /// # Errors
    /// Returns the reason and the remedy.
    fn available(&self, params: &Self::Params) -> Result<(), Failure> {
        let _ = params;
        Ok(())
    }

    /// Estimates how long a sample takes, including preparation, for the plan and for time limits.
    fn expected(&self, params: &Self::Params, budget: Duration) -> Duration {
        let _ = params;
        budget
    }

    /// Returns the path of the file with external machine code (a shared object, a static library) that a point loads,
    /// named by the point or by an option. The lab prepares and measures the point only with `--allow code`, and
    /// refuses to resume a run after the file has changed. [`available`](Self::available) must not load the file.
    fn code(&self, params: &Self::Params, options: &BTreeMap<String, String>) -> Option<String> {
        let _ = (params, options);
        None
    }

    /// Returns the paths of modules whose functions are timed although they do not read the time-stamp counter and no
    /// function that does calls them directly, e.g. `copy::functions`. Bundles list their machine code, as they list that
    /// of the functions that read the counter.
    fn timed_modules(&self) -> &'static [&'static str] {
        &[]
    }

    /// Returns the images that a point executes. Bundles list their timed functions, and what these call.
    fn images(&self, params: &Self::Params) -> Vec<EmbeddedImage> {
        let _ = params;
        Vec::new()
    }

    /// Returns the code of others that is timed as part of a point, e.g. a program that it starts, each with the reason why
    /// bundles do not list it, unless it is the kernel or firmware: `testpmd of DPDK, which the host has installed`.
    fn foreign_code(&self, params: &Self::Params) -> Vec<&'static str> {
        let _ = params;
        Vec::new()
    }

    /// Returns the artefacts that the host must make before it can measure a point.
    fn artefacts(&self, params: &Self::Params) -> Vec<Recipe> {
        let _ = params;
        Vec::new()
    }

    /// Returns the guest inside which a point is measured; `None` if it is measured on the host.
    fn guest(&self, params: &Self::Params) -> Option<Guest> {
        let _ = params;
        None
    }

    /// Returns the group of a point within long tables, e.g. the class of its instruction; `None` if it has none.
    fn group(&self, params: &Self::Params) -> Option<String> {
        let _ = params;
        None
    }

    /// Opens a probe for the points of one order, in a fresh process.
    ///
    /// # Errors
    /// Returns the reason if this machine cannot measure any point.
    fn probe(&self) -> Result<Box<dyn Probe<Self::Params>>, Failure>;
}

/// The measuring part of a method. It lives for one order, so that its buffers can be reused between points.
pub trait Probe<P = Point> {
    /// Measures one point once.
    ///
    /// # Errors
    /// Returns the failure that the journal records instead of values.
    fn measure(&mut self, context: &mut Context, params: &P) -> Result<Measurement, Failure>;
}

/// A function is a probe without state.
impl<P, F> Probe<P> for F
where
    F: FnMut(&mut Context, &P) -> Result<Measurement, Failure>,
{
    fn measure(&mut self, context: &mut Context, params: &P) -> Result<Measurement, Failure> {
        self(context, params)
    }
}

/// A [`Method`] without its type of params: the lab passes points.
pub trait AnyMethod: Sync {
    /// See [`Method::name`].
    fn name(&self) -> &'static str;
    /// See [`Method::how`].
    fn how(&self) -> &'static str;
    /// Returns the factors that an experiment of this method may vary.
    fn factors(&self) -> &'static [Factor];
    /// See [`Method::metrics`].
    fn metrics(&self) -> &'static [Metric];
    /// See [`Method::available`].
    ///
    /// # Errors
    /// Returns the reason and the remedy.
    fn available(&self, point: &Point) -> Result<(), Failure>;
    /// See [`Method::expected`]; the budget if the point is not one of this method.
    fn expected(&self, point: &Point, budget: Duration) -> Duration;
    /// See [`Method::code`].
    fn code(&self, point: &Point, options: &BTreeMap<String, String>) -> Option<String>;
    /// Returns the path of the module of the method's type, e.g. `copy::frames`; only the crate, e.g. `stream`, if the type
    /// is generic, because methods in several modules then share it.
    fn module(&self) -> &'static str;
    /// See [`Method::timed_modules`].
    fn timed_modules(&self) -> &'static [&'static str];
    /// See [`Method::images`].
    fn images(&self, point: &Point) -> Vec<EmbeddedImage>;
    /// See [`Method::foreign_code`].
    fn foreign_code(&self, point: &Point) -> Vec<&'static str>;
    /// See [`Method::artefacts`].
    fn artefacts(&self, point: &Point) -> Vec<Recipe>;
    /// See [`Method::guest`].
    fn guest(&self, point: &Point) -> Option<Guest>;
    /// See [`Method::group`].
    fn group(&self, point: &Point) -> Option<String>;
    /// See [`Method::probe`].
    ///
    /// # Errors
    /// Returns the reason if this machine cannot measure any point.
    fn probe(&self) -> Result<Box<dyn Probe>, Failure>;
}

impl dyn AnyMethod {
    /// Finds a metric by its name.
    ///
    /// # Errors
    /// Returns one line with the method's metrics if there is no such metric.
    pub fn metric(&self, name: &str) -> Result<&'static Metric, String> {
        self.metrics().iter().find(|metric| metric.name == name).ok_or_else(|| {
            let known: Vec<_> = self.metrics().iter().map(|metric| metric.name).collect();
            let (method, known) = (self.name(), known.join(", "));
            format!("unknown metric '{name}' of method '{method}'; expected one of {known}")
        })
    }
}

impl<M: Method> AnyMethod for M {
    fn name(&self) -> &'static str {
        Method::name(self)
    }

    fn how(&self) -> &'static str {
        Method::how(self)
    }

    fn factors(&self) -> &'static [Factor] {
        M::Params::FACTORS
    }

    fn metrics(&self) -> &'static [Metric] {
        Method::metrics(self)
    }

    fn available(&self, point: &Point) -> Result<(), Failure> {
        Method::available(self, &M::Params::from_point(point)?)
    }

    fn expected(&self, point: &Point, budget: Duration) -> Duration {
        M::Params::from_point(point)
            .map_or(budget, |params| Method::expected(self, &params, budget))
    }

    fn code(&self, point: &Point, options: &BTreeMap<String, String>) -> Option<String> {
        Method::code(self, &M::Params::from_point(point).ok()?, options)
    }

    fn module(&self) -> &'static str {
        let path = std::any::type_name::<M>();
        let module = match path.contains('<') {
            true => path.split_once("::"),
            false => path.rsplit_once("::"),
        };
        module.map_or(path, |(module, _)| module)
    }

    fn timed_modules(&self) -> &'static [&'static str] {
        Method::timed_modules(self)
    }

    fn images(&self, point: &Point) -> Vec<EmbeddedImage> {
        let params = M::Params::from_point(point);
        params.map_or_else(|_| Vec::new(), |params| Method::images(self, &params))
    }

    fn foreign_code(&self, point: &Point) -> Vec<&'static str> {
        let params = M::Params::from_point(point);
        params.map_or_else(|_| Vec::new(), |params| Method::foreign_code(self, &params))
    }

    fn artefacts(&self, point: &Point) -> Vec<Recipe> {
        let params = M::Params::from_point(point);
        params.map_or_else(|_| Vec::new(), |params| Method::artefacts(self, &params))
    }

    fn guest(&self, point: &Point) -> Option<Guest> {
        Method::guest(self, &M::Params::from_point(point).ok()?)
    }

    fn group(&self, point: &Point) -> Option<String> {
        Method::group(self, &M::Params::from_point(point).ok()?)
    }

    fn probe(&self) -> Result<Box<dyn Probe>, Failure> {
        Ok(Box::new(Parsing { probe: Method::probe(self)? }))
    }
}

/// A probe that parses each point for the probe of a method.
struct Parsing<P> {
    probe: Box<dyn Probe<P>>,
}

impl<P: Params> Probe for Parsing<P> {
    fn measure(&mut self, context: &mut Context, point: &Point) -> Result<Measurement, Failure> {
        self.probe.measure(context, &P::from_point(point)?)
    }
}
