// Writes the dashboards of Quartet, one JSON file for each, and the kustomization that makes
// ConfigMaps of them. The bytes are the same each time.
package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

func main() {
	folder := flag.String("to", "../..", "the folder that holds dashboards/")
	check := flag.Bool("check", false, "write nothing; fail if a file is not what would be written")
	flag.Parse()
	if err := run(*folder, *check); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(folder string, check bool) error {
	docs, err := os.ReadFile(filepath.Join(folder, "docs-url"))
	if err != nil {
		return err
	}
	var names []string
	for _, each := range boards {
		built, err := each.build(strings.TrimSpace(string(docs)))
		if err != nil {
			return err
		}
		var text bytes.Buffer
		encoder := json.NewEncoder(&text)
		encoder.SetEscapeHTML(false)
		encoder.SetIndent("", "  ")
		if err := encoder.Encode(built); err != nil {
			return fmt.Errorf("%s: %w", each.name, err)
		}
		path := filepath.Join(folder, "dashboards", each.name+".json")
		if err := put(path, text.Bytes(), check); err != nil {
			return err
		}
		names = append(names, each.name)
	}
	return put(filepath.Join(folder, "kustomization.yaml"), kustomization(names), check)
}

func put(path string, text []byte, check bool) error {
	if !check {
		return os.WriteFile(path, text, 0o644)
	}
	there, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if !bytes.Equal(there, text) {
		return fmt.Errorf("%s is not what its source says: run `make dashboards`", path)
	}
	return nil
}
