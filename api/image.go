package api

import "time"

// Image is a stored image that workspaces start from.
type Image struct {
	Digest       string       `json:"digest" doc:"Of its manifest, or of its configuration if it came without one. NAME@DIGEST names it for good."`
	ConfigDigest string       `json:"config_digest"`
	Names        []string     `json:"names" nullable:"false" doc:"As people write them; a tag that has moved on is not among them."`
	Source       string       `json:"source" doc:"registry, oci-layout, docker-archive or root-fs."`
	OS           string       `json:"os"`
	Architecture string       `json:"architecture"`
	SizeBytes    int64        `json:"size_bytes" doc:"Of all files in its layers, those that it shares with other images included."`
	Layers       []ImageLayer `json:"layers" nullable:"false" doc:"Bottom first."`
	CreatedAt    *time.Time   `json:"created_at" doc:"When it was built; null if it does not say."`
	StoredAt     time.Time    `json:"stored_at"`
	Config       ImageConfig  `json:"config"`
	Sessions     []string     `json:"sessions" nullable:"false" doc:"The names of those that stand on it."`
}

// ImageLayer is a layer of an image.
type ImageLayer struct {
	DiffID    string `json:"diff_id" doc:"The digest of its archive without compression."`
	SizeBytes int64  `json:"size_bytes"`
	Entries   int    `json:"entries"`
	Skipped   int    `json:"skipped" doc:"Devices, and attributes that only a privileged daemon could set."`
}

// ImageConfig is what an image says about the commands that run on it. Env, user and working_dir hold for all commands of a workspace;
// nothing is started by itself.
type ImageConfig struct {
	Env        []string          `json:"env" nullable:"false"`
	User       string            `json:"user" doc:"Empty: root."`
	WorkingDir string            `json:"working_dir" doc:"Empty: the user's home directory."`
	Entrypoint []string          `json:"entrypoint" nullable:"false"`
	Cmd        []string          `json:"cmd" nullable:"false"`
	Labels     map[string]string `json:"labels,omitempty"`
	Ports      []string          `json:"ports" nullable:"false"`
}

// PullImage asks for an image of a registry. The login is that of Docker's configuration on the daemon's side.
type PullImage struct {
	Reference string `json:"reference" minLength:"1" maxLength:"512" doc:"NAME, NAME:TAG or NAME@sha256:DIGEST, such as debian:12."`
	Insecure  bool   `json:"insecure,omitempty" doc:"The registry has no TLS."`
}

// PullProgress says how far a pull is.
type PullProgress struct {
	Reference  string `json:"reference"`
	Layers     int    `json:"layers" doc:"0: not known yet."`
	LayersDone int    `json:"layers_done"`
	Bytes      int64  `json:"bytes" doc:"Of all layers, compressed."`
	BytesDone  int64  `json:"bytes_done"`
}

// The names of the server-sent events of a pull, beside ErrorEvent.
const (
	PullProgressEvent = "progress" // a PullProgress
	PullDoneEvent     = "image"    // the Image; the last one
)
