// Command generate turns the protocol file into Go code, as protoc does:
//
//	generate PROTO_FOLDER FILE PACKAGE PLUGIN...
//
// Each plugin is a program that protoc would call. The code goes into the working folder.
package main

import (
	"bytes"
	"context"
	"log"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/bufbuild/protocompile"
	"github.com/bufbuild/protocompile/protoutil"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/pluginpb"
)

func main() {
	if len(os.Args) < 5 {
		log.Fatal("usage: generate PROTO_FOLDER FILE PACKAGE PLUGIN...")
	}
	folder, file, into, plugins := os.Args[1], os.Args[2], os.Args[3], os.Args[4:]
	compiler := protocompile.Compiler{
		Resolver: protocompile.WithStandardImports(&protocompile.SourceResolver{ImportPaths: []string{folder}}),
	}
	files, err := compiler.Compile(context.Background(), file)
	if err != nil {
		log.Fatal(err)
	}
	request := &pluginpb.CodeGeneratorRequest{
		FileToGenerate: []string{file},
		Parameter:      proto.String("M" + file + "=" + into),
		ProtoFile:      withImports(files[0], nil),
	}
	input, err := proto.Marshal(request)
	if err != nil {
		log.Fatal(err)
	}
	for _, plugin := range plugins {
		if err := run(plugin, input); err != nil {
			log.Fatalf("%s: %v", plugin, err)
		}
	}
}

// withImports returns the file after all files that it imports.
func withImports(file protoreflect.FileDescriptor, known []*descriptorpb.FileDescriptorProto) []*descriptorpb.FileDescriptorProto {
	imports := file.Imports()
	for place := range imports.Len() {
		known = withImports(imports.Get(place).FileDescriptor, known)
	}
	return append(known, protoutil.ProtoFromFileDescriptor(file))
}

func run(plugin string, input []byte) error {
	command := exec.Command(plugin)
	command.Stdin, command.Stderr = bytes.NewReader(input), os.Stderr
	output, err := command.Output()
	if err != nil {
		return err
	}
	var response pluginpb.CodeGeneratorResponse
	if err := proto.Unmarshal(output, &response); err != nil {
		return err
	}
	if response.Error != nil {
		log.Fatalf("%s: %s", plugin, response.GetError())
	}
	for _, file := range response.File {
		if err := os.WriteFile(filepath.Base(file.GetName()), []byte(file.GetContent()), 0o644); err != nil {
			return err
		}
	}
	return nil
}
