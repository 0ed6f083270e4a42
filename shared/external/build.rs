//! Compiles the external provider's protocol without `protoc`.

use std::{env, error::Error, fmt::Write as _, fs, path::PathBuf};

use prost_types::{
    DescriptorProto, FieldDescriptorProto, FileDescriptorProto,
    field_descriptor_proto::{Label, Type},
};

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=proto");
    let files = protox::compile(["quartet/cloud/v1/cloud.proto"], ["proto"])?;
    let out = PathBuf::from(env::var("OUT_DIR")?);
    let file = files.file.iter().find(|file| file.package() == PACKAGE);
    fs::write(out.join("shapes.rs"), shapes(file.ok_or("the protocol has another package")?)?)?;
    tonic_prost_build::configure().btree_map(".").compile_fds(files)?;
    Ok(())
}

const PACKAGE: &str = "quartet.cloud.v1";

/// Returns the fields of all messages that take more memory than they have bytes, and the answers
/// of all methods: for `src/external/weight.rs`.
fn shapes(file: &FileDescriptorProto) -> Result<String, Box<dyn Error>> {
    let mut code = "static SHAPES: &[Shape] = &[\n".to_owned();
    for message in &file.message_type {
        writeln!(code, "    Shape({:?}, &[", message.name())?;
        for field in &message.field {
            if let Some(holds) = holds(file, message, field) {
                writeln!(code, "        ({}, Holds::{holds}),", field.number())?;
            }
        }
        writeln!(code, "    ]),")?;
    }
    code += "];\n\nstatic ANSWERS: &[(&str, Answer)] = &[\n";
    for service in &file.service {
        for method in &service.method {
            let path = format!("/{PACKAGE}.{}/{}", service.name(), method.name());
            let shape = index(file, method.output_type()).ok_or("an answer of another package")?;
            let streams = method.server_streaming();
            writeln!(code, "    ({path:?}, Answer {{ shape: {shape}, streams: {streams} }}),")?;
        }
    }
    Ok(code + "];\n")
}

/// Returns the kind of a field that may take more memory than it has bytes.
fn holds(
    file: &FileDescriptorProto,
    message: &DescriptorProto,
    field: &FieldDescriptorProto,
) -> Option<String> {
    let is_list = field.label() == Label::Repeated;
    let nested = format!(".{PACKAGE}.{}.", message.name());
    match field.r#type() {
        // No other message is nested.
        Type::Message if field.type_name().starts_with(&nested) => Some("Map".to_owned()),
        Type::Message => {
            let inner = index(file, field.type_name())?;
            let name = file.message_type.get(inner)?.name();
            Some(match is_list {
                true => format!("Messages({inner}, size_of::<proto::{name}>())"),
                false => format!("Message({inner})"),
            })
        }
        Type::String if is_list => Some("Texts".to_owned()),
        Type::String => None,
        _ if is_list => Some("Numbers".to_owned()),
        _ => None,
    }
}

/// Returns the index of a message of the protocol; `None` if it is another one, which has no lists.
fn index(file: &FileDescriptorProto, name: &str) -> Option<usize> {
    let name = name.strip_prefix(&format!(".{PACKAGE}."))?;
    file.message_type.iter().position(|message| message.name() == name)
}
