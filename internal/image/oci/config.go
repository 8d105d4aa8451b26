package oci

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"path"
	"runtime"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"perdure.dev/perdure/internal/errdefs"
	"perdure.dev/perdure/internal/image"
)

// maxDocument bounds manifests and configurations, in bytes. Registries allow 4 MiB.
const maxDocument = 8 << 20

// maxLayers is more than any builder makes, and less than overlayfs takes together with a session's own layers.
const maxLayers = 256

func digestOf(b []byte) string {
	sum := sha256.Sum256(b)
	return "sha256:" + hex.EncodeToString(sum[:])
}

func invalid(format string, args ...any) *errdefs.Error {
	return errdefs.New(errdefs.Invalid, "image_invalid", format, args...)
}

// parseConfig reads an image's configuration and refuses what cannot run here.
func parseConfig(raw []byte) (*v1.ConfigFile, error) {
	c, err := v1.ParseConfigFile(bytes.NewReader(raw))
	if err != nil {
		return nil, errdefs.Wrap(err, errdefs.Invalid, "image_invalid", "the image's configuration cannot be read")
	}
	if len(c.RootFS.DiffIDs) > maxLayers {
		return nil, errdefs.New(errdefs.Exhausted, "image_too_large", "the image has %d layers", len(c.RootFS.DiffIDs)).WithHint("have it built with at most %d", maxLayers)
	}
	if len(c.RootFS.DiffIDs) == 0 {
		return nil, invalid("the image has no layers: it is no root file system")
	}
	for _, d := range c.RootFS.DiffIDs {
		if d.Algorithm != "sha256" || len(d.Hex) != 64 {
			return nil, invalid("the image's layer %q is not named by a SHA-256 sum", d.String())
		}
	}
	if c.OS != "" && c.OS != "linux" || c.Architecture != "" && c.Architecture != runtime.GOARCH {
		return nil, errdefs.New(errdefs.Invalid, "image_platform_missing", "the image is for %s/%s, and this machine is linux/%s", c.OS, c.Architecture, runtime.GOARCH).
			WithHint("get the one for linux/%s", runtime.GOARCH)
	}
	return c, nil
}

// configOf shows a stored configuration. It has been parsed before.
func configOf(raw json.RawMessage) image.Config {
	c, err := v1.ParseConfigFile(bytes.NewReader(raw))
	if err != nil {
		return image.Config{}
	}
	out := image.Config{
		User: c.Config.User, WorkingDir: c.Config.WorkingDir, Entrypoint: c.Config.Entrypoint, Cmd: c.Config.Cmd, Labels: c.Config.Labels,
		Ports: slices.Sorted(maps.Keys(c.Config.ExposedPorts)),
	}
	if out.WorkingDir != "" {
		out.WorkingDir = path.Clean("/" + strings.ReplaceAll(out.WorkingDir, "\x00", ""))
	}
	for _, kv := range c.Config.Env {
		if k, _, ok := strings.Cut(kv, "="); ok && k != "" && !strings.ContainsRune(kv, 0) {
			out.Env = append(out.Env, kv)
		}
	}
	return out
}
