package harness

import (
	"errors"
	"os"
	"path/filepath"
)

// Root is the folder of go.mod, found from the working directory upwards: tests run in their package's folder, commands
// anywhere in the repository.
func Root() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", errors.New("harness: no go.mod in this folder or above it: run this inside the repository")
		}
		dir = parent
	}
}
