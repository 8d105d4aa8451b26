package shim

import (
	"path/filepath"

	"perdure.dev/perdure/internal/errdefs"
	"perdure.dev/perdure/internal/sandbox"
)

// originFile lies in each image.
const originFile = "origin.json"

// Origin names the files outside the workspace that an image refers to. They are restored with it, not their newer versions. Files in a cache
// are named by their content, so that another cache that has one of the same name has the same.
type Origin struct {
	Guest string
	Base  string
	CPU   *sandbox.CPU `json:",omitempty"` // what the image wants; nil in one that is older than this field
}

func writeOrigin(dir string, cfg Config) error {
	return writeJSON(filepath.Join(dir, originFile), Origin{Guest: cfg.Guest, Base: cfg.Base, CPU: cfg.CPU})
}

// ReadOrigin reads what an image refers to. Error: image_unreadable.
func ReadOrigin(imageDir string) (Origin, error) {
	var o Origin
	if err := readJSON(filepath.Join(imageDir, originFile), &o); err != nil {
		return o, errdefs.Wrap(err, errdefs.Corrupt, "image_unreadable", "read the memory image")
	}
	return o, nil
}
