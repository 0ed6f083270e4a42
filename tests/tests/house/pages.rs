//! The generated pages of docs/ equal the output of the built programs. With `QUARTET_WRITE_DOCS`
//! set they are written.

use ccm_runtime::programs;
use ccm_tests::{measured, metrics_page, printed};

pub(super) fn everything() -> anyhow::Result<Vec<measured::Family>> {
    let mut all = Vec::new();
    for listing in programs::ALL {
        all.extend(printed::metrics(listing.identity.binary)?);
    }
    let registry = ccm_providers::registry();
    for name in registry.names() {
        all.extend(measured::of_provider(registry.get(&name)?.as_ref())?);
    }
    Ok(all)
}

fn is_current(name: &str, printed: &str) {
    let path = ccm_tests::cluster::repository().join("docs").join(name);
    if std::env::var_os("QUARTET_WRITE_DOCS").is_some() {
        std::fs::write(&path, printed).unwrap_or_else(|error| panic!("docs/{name}: {error}"));
    }
    let page = std::fs::read_to_string(path).unwrap_or_default();
    assert!(page == printed, "run `make docs` and commit docs/{name}");
}

#[test]
fn the_page_of_metrics_is_current() {
    is_current("reference/metrics.md", &metrics_page::page().unwrap());
}

#[test]
fn the_pages_of_options_are_current() {
    for listing in programs::ALL {
        let binary = listing.identity.binary;
        let page = printed::options(binary).unwrap();
        assert!(page.starts_with(&format!("# Settings of {binary}\n")), "{page}");
        for sibling in programs::ALL.iter().filter(|other| other.identity.binary != binary) {
            let sibling_name = sibling.identity.binary;
            let warns = page.contains(&format!("it belongs to {sibling_name}"));
            assert_eq!(
                warns,
                sibling.has_flags(),
                "{binary} does not know the flags of {sibling_name}"
            );
        }
        is_current(&format!("reference/options-{binary}.md"), &page);
    }
}

#[test]
fn the_reference_of_cloud_conf_is_current() {
    const MARKS: [&str; 2] = ["<!-- settings: begin", "<!-- settings: end -->"];
    let path = ccm_tests::cluster::repository().join("docs/reference/cloud-conf.md");
    let page = std::fs::read_to_string(path).unwrap();
    let (head, rest) = page.split_once(MARKS[0]).expect("the first mark");
    let (mark, rest) = rest.split_once("-->\n").expect("the end of the first mark");
    let (_, tail) = rest.split_once(MARKS[1]).expect("the second mark");
    let reference = ccm_openstack::reference();
    let printed = format!("{head}{}{mark}-->\n\n{reference}\n{}{tail}", MARKS[0], MARKS[1]);
    is_current("reference/cloud-conf.md", &printed);
}

#[test]
fn every_program_is_listed_once() {
    let folder = ccm_tests::cluster::repository().join("bins");
    let folders = std::fs::read_dir(folder).unwrap().flatten();
    let names = folders.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let mut built: Vec<_> = names.filter(|name| name.ends_with("-ccm")).collect();
    let mut listed: Vec<_> =
        programs::ALL.iter().map(|listing| listing.identity.binary.to_owned()).collect();
    built.sort_unstable();
    listed.sort_unstable();
    assert_eq!(built, listed, "shared/runtime/src/programs.rs lists the programs of bins/");
    let mut ports: Vec<_> = programs::ALL.iter().map(|listing| listing.identity.port).collect();
    ports.sort_unstable();
    ports.dedup();
    assert_eq!(ports.len(), listed.len(), "two programs have the same port");
}

#[test]
fn every_metric_is_explained() {
    for family in everything().unwrap() {
        let (name, meaning) = (&family.name, family.meaning());
        assert!(family.samples > 0, "{name} has no specimen");
        assert!(meaning.len() > 20 && meaning.ends_with('.'), "{name}: {meaning:?} says little");
        let own = name.starts_with("ccm_") || name.starts_with("openstack_");
        assert!(!own || family.stability() == "ALPHA", "{name} has no stability");
        // A histogram of something other than time must name it.
        assert!(
            !own || family.kind != "histogram"
                || family.unit() != "number"
                || name.ends_with("_size"),
            "{name} has no unit"
        );
        assert!(!meaning.contains('|'), "{name}: {meaning:?} breaks the table");
    }
}

/// If both the target and the metric have a label, Prometheus keeps the target's and renames the
/// metric's to `exported_...`, which no query finds.
#[test]
fn no_label_is_named_like_one_of_a_target() {
    const OF_TARGETS: [&str; 9] = [
        "cluster",
        "container",
        "endpoint",
        "instance",
        "job",
        "namespace",
        "node",
        "pod",
        "service",
    ];
    let all = everything().unwrap();
    let labels = all.iter().flat_map(|family| {
        family.labels.keys().map(move |label| (label.as_str(), family.name.as_str()))
    });
    let hidden: Vec<_> = labels.filter(|(label, _)| OF_TARGETS.contains(label)).collect();
    assert!(hidden.is_empty(), "target labels hide these: {hidden:?}");
}

#[test]
fn no_name_is_used_twice() {
    for listing in programs::ALL {
        let page = printed::metrics_page(listing.identity.binary).unwrap();
        let mut names: Vec<_> = page
            .lines()
            .filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next())
            .collect();
        let all = names.len();
        assert!(all > 30, "{page}");
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all, "{page}");
        let lines = page.lines().filter(|line| !line.starts_with('#'));
        let mut series: Vec<_> = lines.filter_map(|line| Some(line.rsplit_once(' ')?.0)).collect();
        let all = series.len();
        series.sort_unstable();
        series.dedup();
        assert_eq!(series.len(), all, "{page}");
        for help in page.lines().filter(|line| line.starts_with("# HELP ")) {
            let own = help.contains(" ccm_") || help.contains("HELP kubernetes_");
            assert!(!own || help.contains(" [ALPHA] "), "no stability: {help}");
            assert!(help.ends_with('.') && !help.ends_with(".."), "{help}");
        }
    }
}

#[test]
fn every_open_label_is_in_use() {
    let all = everything().unwrap();
    for (label, _) in metrics_page::OPEN {
        let used = all.iter().any(|family| family.labels.contains_key(label));
        assert!(used, "no metric has the label {label}");
    }
}
