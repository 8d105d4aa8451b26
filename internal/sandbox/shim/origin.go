package shim

import (
	"path/filepath"

	"perdure.dev/perdure/internal/errdefs"
)

// originFile lies in each image.
const originFile = "origin.json"

// Origin names the files outside the workspace that an image refers to. They are restored with it, not their newer versions.
type Origin struct {
	Guest string
	Base  string
}

func writeOrigin(dir string, cfg Config) error {
	return writeJSON(filepath.Join(dir, originFile), Origin{Guest: cfg.Guest, Base: cfg.Base})
}

// ReadOrigin reads what an image refers to. Error: image_unreadable.
func ReadOrigin(imageDir string) (Origin, error) {
	var o Origin
	if err := readJSON(filepath.Join(imageDir, originFile), &o); err != nil {
		return o, errdefs.Wrap(err, errdefs.Corrupt, "image_unreadable", "read the memory image")
	}
	return o, nil
}
