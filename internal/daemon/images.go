package daemon

import (
	"path/filepath"
	"runtime"

	"perdure.dev/perdure/internal/snapshot"
	"perdure.dev/perdure/internal/snapshot/disk"
)

// The store of memory images in the data directory. Keys are apart from it, so that a copy of the one tells nothing without the other.
const (
	imagesDir = "images"
	keysDir   = "keys"
)

func openImages(dataDir string, plain bool) (*snapshot.Store, error) {
	bucket, err := disk.Open(filepath.Join(dataDir, imagesDir))
	if err != nil {
		return nil, err
	}
	open := disk.OpenKeys
	if plain {
		open = disk.OpenPublicKeys
	}
	keys, err := open(filepath.Join(dataDir, keysDir))
	if err != nil {
		return nil, err
	}
	// Half of the processors: it works in the background of what people wait for.
	return snapshot.New(bucket, keys, runtime.NumCPU()/2)
}
