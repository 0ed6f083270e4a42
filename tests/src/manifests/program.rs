//! The command line of a Deployment, for the built program that it would start, with the
//! pod's paths mapped into a folder.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use ccm_sim::program::{Finished, Launch};
use serde_json::Value;

use super::objects::{Objects, arguments, at, controller, identity, list};

/// Time limit of `--check-config`, which allows a provider ten seconds.
const LIMIT: Duration = Duration::from_secs(30);

/// A cloud.conf as an operator writes it; its Keystone does not answer.
const CLOUD_CONF: &str = "[Global]
auth-url = http://127.0.0.1:1/v3
region = RegionOne
application-credential-id = 3a1c0de5f0b14b5e8d6f2d7c9b8a7e6f
application-credential-secret = \"not one\"

[Route]
router-id = 6f0a2e52-6c1d-4b8e-9a51-0c5b1f0a7d11
";

/// The program and arguments of a Deployment, on this machine.
#[derive(Clone, Debug)]
pub struct Command {
    /// The program's name, from its image.
    pub program: String,
    /// Its arguments, with paths mapped into the folder.
    pub arguments: Vec<String>,
    /// The path of the settings file.
    pub settings: PathBuf,
}

impl Command {
    /// Returns the controller of this Deployment, with its mounted files written below `folder`.
    pub fn of(deployment: &Value, objects: &Objects, folder: &Path) -> Result<Self> {
        let container = controller(deployment)?;
        let image = at(container, "/image");
        let name = image.rsplit('/').next().unwrap_or_default();
        let program = name.split(':').next().unwrap_or_default().to_owned();
        let mut arguments: Vec<String> =
            arguments(container).into_iter().map(|word| expand(word, container)).collect();
        let mut settings = None;
        for mount in list(container, "/volumeMounts") {
            let (path, volume) = (at(mount, "/mountPath"), at(mount, "/name"));
            let Some(files) = files(deployment, objects, volume)? else { continue };
            let here = folder.join(volume);
            fs::create_dir_all(&here)?;
            for (file, text) in files {
                fs::write(here.join(&file), text)?;
                settings = (file == "config.yaml").then(|| here.join(file)).or(settings);
            }
            let inside = format!("{path}/");
            let outside = format!("{}/", here.display());
            arguments = arguments.iter().map(|word| word.replace(&inside, &outside)).collect();
        }
        let settings = settings
            .with_context(|| format!("{} has no file of settings", identity(deployment)))?;
        let arguments_of_pods = arguments.iter().find(|word| word.contains("=/etc/"));
        ensure!(arguments_of_pods.is_none(), "{arguments_of_pods:?} is in no volume");
        Ok(Self { program, arguments, settings })
    }

    /// Returns true if it names the cloud's configuration.
    pub fn has_provider(&self) -> bool {
        self.arguments.iter().any(|word| word.starts_with("--cloud-provider="))
    }

    /// Returns the program with these arguments.
    pub fn launch(&self) -> Launch {
        let launch = Launch::new(&self.program);
        self.arguments.iter().fold(launch, Launch::arg)
    }

    /// Checks command line and files with the program's own parser.
    pub async fn check(&self, kubeconfig: &Path) -> Result<Finished> {
        let launch = self
            .launch()
            .arg("--check-config")
            .arg(format!("--kubeconfig={}", kubeconfig.display()));
        launch.run(LIMIT).await
    }
}

/// Returns an argument with the values of the container's variables, as the kubelet expands it.
fn expand(word: &str, container: &Value) -> String {
    list(container, "/env").iter().fold(word.to_owned(), |word, variable| {
        let (name, value) = (at(variable, "/name"), at(variable, "/value"));
        word.replace(&format!("$({name})"), value)
    })
}

/// Returns the files of a volume; empty if the kubelet provides them.
fn files(
    deployment: &Value,
    objects: &Objects,
    volume: &str,
) -> Result<Option<Vec<(String, String)>>> {
    let volumes = list(deployment, "/spec/template/spec/volumes");
    let source = volumes
        .iter()
        .find(|known| at(known, "/name") == volume)
        .with_context(|| format!("{} has no volume {volume}", identity(deployment)))?;
    if at(source, "/secret/secretName") == "cloud-config" {
        return Ok(Some(vec![("cloud.conf".to_owned(), CLOUD_CONF.to_owned())]));
    }
    let name = at(source, "/configMap/name");
    if name.is_empty() {
        return Ok(None);
    }
    let map = objects.named("ConfigMap", name).with_context(|| format!("no ConfigMap {name}"))?;
    let data = map.get("data").and_then(Value::as_object).context("a ConfigMap has data")?;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    Ok(Some(data.iter().map(|(file, value)| (file.clone(), text(value))).collect()))
}
