//! Metadata of a bundle: RO-Crate 1.1 with the provenance of the Process Run Crate profile.

use lab::journal::{CODE, RECORD, Run, SAMPLES};
use lab::run::is_lab_experiment;
use lab::sample::Sample;
use machine::environment::Environment;
use serde_json::{Value, json};

use super::{Entries, METADATA, digest};

/// The specification of the metadata.
const CONFORMS_TO: &str = "https://w3id.org/ro/crate/1.1";
/// The profile of the provenance.
const PROFILE: &str = "https://w3id.org/ro/wfrun/process/0.5";

/// Author of the measurement, as the user states it.
#[derive(Debug, Clone, Default)]
pub struct Author {
    /// Name of the author; `None` if not stated.
    pub name: Option<String>,
    /// URL of the licence; `None` if not stated.
    pub licence: Option<String>,
}

/// Subject of the metadata apart from the files.
pub struct Crate<'a> {
    /// The run.
    pub run: &'a Run,
    /// The command that repeats it.
    pub command: &'a str,
    /// Version of the program that writes the bundle.
    pub version: &'a str,
    /// BLAKE3 hash of the program that writes the bundle; `None` if it cannot be read.
    pub program_hash: Option<&'a str>,
    /// Author and licence.
    pub author: &'a Author,
}

impl Crate<'_> {
    /// Returns the metadata of some files.
    pub(super) fn metadata(&self, entries: &Entries) -> Value {
        let mut graph = vec![
            json!({
                "@id": METADATA,
                "@type": "CreativeWork",
                "about": { "@id": "./" },
                "conformsTo": [{ "@id": CONFORMS_TO }],
            }),
            self.root(entries),
        ];
        let files = entries.0.iter().map(|(name, entry)| {
            json!({
                "@id": name,
                "@type": "File",
                "name": name,
                "description": entry.about,
                "encodingFormat": media_type(name),
                "contentSize": entry.bytes.len().to_string(),
                "sha256": digest(&entry.bytes),
            })
        });
        graph.extend(files);
        graph.extend(self.actions(entries));
        graph.extend(self.programs());
        let environments = &self.run.record.environments;
        graph.extend(environments.iter().map(|(id, environment)| machine(id, environment)));
        graph.push(json!({
            "@id": PROFILE,
            "@type": ["CreativeWork", "Profile"],
            "name": "Process Run Crate",
            "version": "0.5",
        }));
        graph.push(self.licence());
        graph.extend(
            self.author
                .name
                .as_ref()
                .map(|name| json!({ "@id": "#author", "@type": "Person", "name": name })),
        );
        json!({
            "@context": [
                format!("{CONFORMS_TO}/context"),
                { "sha256": "https://schema.org/sha256" },
            ],
            "@graph": graph,
        })
    }

    fn root(&self, entries: &Entries) -> Value {
        let record = &self.run.record;
        let parts: Vec<Value> = entries.0.keys().map(|name| json!({ "@id": name })).collect();
        let mut root = json!({
            "@id": "./",
            "@type": "Dataset",
            "name": format!("tollgate run {}", record.name),
            "description": format!(
                "A run of tollgate {} with profile {}, its report, figures and verdicts. This command measures it again: {}",
                record.program, record.profile.name(), self.command,
            ),
            "datePublished": self.end(),
            "conformsTo": { "@id": PROFILE },
            "license": { "@id": self.licence_id() },
            "hasPart": parts,
            "mentions": [{ "@id": "#measurement" }, { "@id": "#derivation" }],
        });
        if let (Some(_), Value::Object(members)) = (&self.author.name, &mut root) {
            members.insert("author".into(), json!({ "@id": "#author" }));
        }
        root
    }

    /// Returns the measurement, and the derivation of everything else from the journal.
    fn actions(&self, entries: &Entries) -> [Value; 2] {
        let record = &self.run.record;
        let is_measured = |name: &str| [RECORD, SAMPLES, CODE].contains(&name);
        let files = |measured: bool| -> Vec<Value> {
            let names = entries.0.keys().filter(|name| is_measured(name) == measured);
            names.map(|name| json!({ "@id": name })).collect()
        };
        let programs = self.run_programs().into_keys().map(|id| json!({ "@id": id }));
        let machines =
            record.environments.keys().map(|id| json!({ "@id": format!("#machine-{id}") }));
        let mut measurement = json!({
            "@id": "#measurement",
            "@type": "CreateAction",
            "name": format!("Measurement {}", record.name),
            "description": self.command,
            "startTime": record.start,
            "endTime": self.end(),
            "instrument": programs.chain(machines).collect::<Vec<_>>(),
            "result": files(true),
        });
        if let (Some(_), Value::Object(members)) = (&self.author.name, &mut measurement) {
            members.insert("agent".into(), json!({ "@id": "#author" }));
        }
        let derivation = json!({
            "@id": "#derivation",
            "@type": "CreateAction",
            "name": "Derivation of report, figures, values and verdicts",
            "instrument": { "@id": "#bundler" },
            "object": files(true),
            "result": files(false),
        });
        [measurement, derivation]
    }

    /// Returns the end of the last sample, which does not depend on when the bundle is written; without samples, the start.
    fn end(&self) -> String {
        let last = self.run.samples.iter().map(end_of).reduce(f64::max);
        let last = last.and_then(|end| jiff::Timestamp::from_second(end as i64).ok());
        let start = || self.run.record.start.clone();
        last.map_or_else(start, |end| end.strftime("%Y-%m-%dT%H:%M:%SZ").to_string())
    }

    /// Returns the programs that measured, by ID, each with its first environment.
    fn run_programs(&self) -> std::collections::BTreeMap<String, &Environment> {
        let mut programs = std::collections::BTreeMap::new();
        for environment in self.run.record.environments.values() {
            let hash = environment.program_hash.as_deref().unwrap_or("unknown");
            let short = hash.get(..12).unwrap_or(hash);
            programs.entry(format!("#tollgate-{short}")).or_insert(environment);
        }
        programs
    }

    fn programs(&self) -> Vec<Value> {
        let measured = self.run_programs().into_iter().map(|(id, environment)| {
            let hash = environment.program_hash.as_deref();
            program(&id, "tollgate, which measured", &environment.program_version, hash)
        });
        let bundler = "tollgate, which wrote this bundle";
        measured.chain([program("#bundler", bundler, self.version, self.program_hash)]).collect()
    }

    fn licence_id(&self) -> &str {
        self.author.licence.as_deref().unwrap_or("#licence")
    }

    fn licence(&self) -> Value {
        let id = self.licence_id();
        let (name, about) = match &self.author.licence {
            Some(url) => (url.as_str(), "Licence of this bundle"),
            None => ("none stated", "The author states it with 'tollgate bundle --licence URL'"),
        };
        json!({ "@id": id, "@type": "CreativeWork", "name": name, "description": about })
    }
}

/// Returns when a sample ended, in seconds after the epoch. The lab records its overhead at the end of a session.
fn end_of(sample: &Sample) -> f64 {
    if is_lab_experiment(&sample.experiment) { sample.at } else { sample.at + sample.seconds }
}

fn program(id: &str, name: &str, version: &str, hash: Option<&str>) -> Value {
    json!({
        "@id": id,
        "@type": "SoftwareApplication",
        "name": name,
        "softwareVersion": version,
        "identifier": hash.map_or_else(|| "unknown".into(), |hash| format!("blake3:{hash}")),
    })
}

/// Returns the machine of an environment.
fn machine(id: &str, environment: &Environment) -> Value {
    let Environment { hostname, kernel_release, cpu, .. } = environment;
    let cpu = if cpu.brand.is_empty() { "unknown CPU" } else { &cpu.brand };
    json!({
        "@id": format!("#machine-{id}"),
        "@type": "IndividualProduct",
        "name": format!("{hostname}: {cpu}"),
        "description": format!("Linux {kernel_release}; environments.json has all properties, by ID {id}"),
        "identifier": id,
    })
}

fn media_type(name: &str) -> &'static str {
    match name.rsplit_once('.').map_or("", |(_, extension)| extension) {
        "json" => "application/json",
        "jsonl" => "application/jsonl",
        "html" => "text/html",
        "svg" => "image/svg+xml",
        "toml" => "application/toml",
        "py" => "text/x-python",
        "md" => "text/markdown",
        _ => "text/plain",
    }
}
