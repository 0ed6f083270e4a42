//! The folders of `manifests/`, and their possible combinations.

use std::{
    collections::BTreeSet,
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, ensure};
use walkdir::WalkDir;

/// Folders that several controllers share or that move them. They are not applied by themselves.
const BASES: [&str; 3] = ["common", "guard", "namespace"];
/// Components for the cloud; a deployment uses exactly one.
const PROVIDERS: [&str; 2] = ["external-provider", "openstack"];
/// Components that bring a controller that is not installed in any other way.
const BRINGS: [(&str, &str); 1] = [("routes", "route-ccm")];
/// Optional components.
const OPTIONS: [&str; 6] = [
    "beside-go-controller",
    "control-plane-only",
    "host-network",
    "one-replica",
    "own-credentials",
    "prometheus-operator",
];

/// The contents of `manifests/`.
#[derive(Clone, Debug)]
pub struct Tree {
    root: PathBuf,
    /// The controllers, each the name of a folder.
    pub controllers: Vec<String>,
    /// The overlays, as paths below `overlays/`.
    pub overlays: Vec<String>,
}

impl Tree {
    /// Walks the tree. Fails at a folder that no test covers.
    pub fn read() -> Result<Self> {
        let root = crate::cluster::repository().join("manifests").canonicalize()?;
        let mut tree = Self { root, controllers: Vec::new(), overlays: Vec::new() };
        let mut components = BTreeSet::new();
        let walk = WalkDir::new(&tree.root).sort_by_file_name();
        for entry in walk {
            let entry = entry?;
            if entry.file_name() != "kustomization.yaml" {
                continue;
            }
            let folder = entry.path().parent().context("a file has a folder")?;
            let path = folder.strip_prefix(&tree.root)?.to_str().context("a plain name")?;
            match path.split_once('/') {
                None if BASES.contains(&path) => {}
                None => tree.controllers.push(path.to_owned()),
                Some(("overlays", overlay)) => tree.overlays.push(overlay.to_owned()),
                Some(("components", name)) => {
                    components.insert(name.to_owned());
                }
                Some(_) => anyhow::bail!("manifests/{path}: a folder that no test knows"),
            }
        }
        let known = PROVIDERS.iter().chain(&OPTIONS).copied();
        let known = known.chain(BRINGS.iter().map(|(component, _)| *component));
        let known: BTreeSet<_> = known.map(str::to_owned).collect();
        ensure!(
            components == known,
            "manifests/components has {components:?}; this test knows {known:?}"
        );
        ensure!(!tree.controllers.is_empty(), "manifests/ holds no controller");
        Ok(tree)
    }

    /// Returns a folder or file of the tree.
    pub fn path(&self, below: &str) -> PathBuf {
        self.root.join(below)
    }

    /// Returns the folders that can be applied.
    pub fn folders(&self) -> Vec<String> {
        let overlays = self.overlays.iter().map(|overlay| format!("overlays/{overlay}"));
        let by_itself = |controller: &&String| component_of(controller).is_none();
        self.controllers.iter().filter(by_itself).cloned().chain(overlays).collect()
    }

    /// Returns every set of controllers, with a component's controller alone or beside all others,
    /// with every provider and without one, and with no option, each option alone, and all options.
    pub fn choices(&self) -> Vec<Choice> {
        let alone = OPTIONS.iter().map(|option| vec![*option]);
        let options: Vec<_> = alone.chain([Vec::new(), OPTIONS.to_vec()]).collect();
        let providers = PROVIDERS.iter().copied().map(Some).chain([None]);
        let (brought, plain): (Vec<_>, Vec<_>) =
            self.controllers.iter().cloned().partition(|it| component_of(it).is_some());
        let mut sets = subsets(&plain);
        sets.extend([brought, self.controllers.clone()]);
        let mut choices = Vec::new();
        for provider in providers {
            for options in &options {
                for controllers in &sets {
                    choices.push(Choice {
                        controllers: controllers.clone(),
                        components: provider.iter().chain(options).copied().collect(),
                    });
                }
            }
        }
        choices
    }

    /// Writes a kustomization of this choice into `folder`.
    pub fn write(&self, choice: &Choice, folder: &Path) -> Result<()> {
        let root = self.seen_from(folder)?;
        let mut text =
            "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\n".to_owned();
        writeln!(text, "resources:\n- {root}/guard")?;
        for controller in choice.controllers.iter().filter(|it| component_of(it).is_none()) {
            writeln!(text, "- {root}/{controller}")?;
        }
        text.push_str("components:\n");
        // The components that bring a controller come first, because the others patch it.
        let bringing = choice.controllers.iter().filter_map(|it| component_of(it));
        for component in bringing.chain(choice.components.iter().copied()) {
            writeln!(text, "- {root}/components/{component}")?;
        }
        fs::write(folder.join("kustomization.yaml"), text)?;
        Ok(())
    }

    /// Returns the path from `folder` to the tree: kustomize accepts only relative paths.
    pub fn seen_from(&self, folder: &Path) -> Result<String> {
        let up = folder.canonicalize()?.components().count() - 1;
        let down = self.root.strip_prefix("/")?.display();
        Ok(format!("{}{down}", "../".repeat(up)))
    }
}

/// A possible installation.
#[derive(Clone, Debug)]
pub struct Choice {
    /// The controllers.
    pub controllers: Vec<String>,
    /// The components, by name.
    pub components: Vec<&'static str>,
}

impl Choice {
    /// Returns true if the pods use the host network.
    pub fn has(&self, component: &str) -> bool {
        self.components.contains(&component)
    }
}

impl std::fmt::Display for Choice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} with {}", self.controllers.join(", "), self.components.join(", "))
    }
}

/// Returns the component that brings this controller, if it is not installed by default.
fn component_of(controller: &str) -> Option<&'static str> {
    BRINGS.iter().find(|(_, brought)| *brought == controller).map(|(component, _)| *component)
}

/// Returns all non-empty subsets.
fn subsets(all: &[String]) -> Vec<Vec<String>> {
    let mut found = vec![Vec::new()];
    for item in all {
        let with: Vec<_> = found
            .iter()
            .map(|subset: &Vec<String>| subset.iter().chain([item]).cloned().collect())
            .collect();
        found.extend(with);
    }
    found.retain(|subset| !subset.is_empty());
    found
}
