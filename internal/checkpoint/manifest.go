package checkpoint

import (
	"encoding/json"
	"time"

	"perdure.dev/perdure/internal/event"
	"perdure.dev/perdure/internal/guest/spool"
	"perdure.dev/perdure/internal/id"
	"perdure.dev/perdure/internal/sandbox"
)

// Format is the version of manifest.json that this build writes. It reads every version up to it.
const Format = 1

// Manifest says what a checkpoint consists of.
type Manifest struct {
	Format       int                  `json:"format"`
	ID           id.Checkpoint        `json:"id"`
	SessionID    id.Session           `json:"session_id"`
	Lineage      id.Session           `json:"lineage,omitempty"` // the session that SessionID descends from; see Images
	Kind         event.CheckpointKind `json:"kind"`
	Message      string               `json:"message,omitempty"`
	Keep         bool                 `json:"keep,omitempty"`
	CutSeq       event.Seq            `json:"cut_seq"`
	CutHash      string               `json:"cut_hash"` // of the event at CutSeq: binds the transcript
	ParentID     id.Checkpoint        `json:"parent_id,omitempty"`
	CreatedAt    time.Time            `json:"created_at"`
	Environment  Environment          `json:"environment"`
	Layers       []id.Layer           `json:"layers"` // bottom first
	FileBytes    int64                `json:"file_bytes"`
	PauseMS      float64              `json:"pause_ms"`
	Memory       *Memory              `json:"memory,omitempty"` // nil: files only
	OpenExecs    []OpenExec           `json:"open_execs,omitempty"`
	ProcessCount int                  `json:"process_count"`
	Boot         string               `json:"boot,omitempty"` // of the machine that wrote it; see Seal
}

// Environment is what the checkpoint can be restored on.
type Environment struct {
	Driver  string `json:"driver"`
	Version string `json:"version"` // of the driver's engine
	Image   string `json:"image"`
	Arch    string `json:"arch"`
	// What follows is not in manifests that are older than these fields.
	ImageDigest string       `json:"image_digest,omitempty"` // of a stored image; host and dir: have none
	Kernel      string       `json:"kernel,omitempty"`       // release of the host's kernel, for people
	Layers      string       `json:"layers,omitempty"`       // how file layers are marked, see layer.Marks
	Guest       int          `json:"guest,omitempty"`        // version of the language that the guest speaks, see wire.Version
	CPU         *sandbox.CPU `json:"cpu,omitempty"`          // what the memory image wants of the processor
}

// Took notes what an image that has been taken wants.
func (e *Environment) Took(image sandbox.Image) { e.Version, e.CPU = image.Version, image.CPU }

// Memory is the driver's memory image.
type Memory struct {
	Bytes int64  `json:"bytes"`
	Files []File `json:"files"` // sorted by name
	// Of is another checkpoint with the same image: "" for one that was taken.
	Of id.Checkpoint `json:"of,omitempty"`
}

// File is one file of a memory image.
type File struct {
	Name string `json:"name"`
	Size int64  `json:"size"`
	Hash string `json:"hash"`
}

// OpenExec is a command that was running at the cut, with the size of its output by then.
type OpenExec spool.CutExec

// Devolved says that a layer of the checkpoint cannot be brought back, and what ran.
func (m Manifest) Devolved(layer, code, reason string) event.WorkspaceDevolvedData {
	out := event.WorkspaceDevolvedData{CheckpointID: m.ID, Layer: layer, Code: code, Reason: reason}
	for _, x := range m.OpenExecs {
		spec := x.Status.Spec
		out.Commands = append(out.Commands, event.LostCommand{
			ExecID: x.Status.ID, Kind: string(spec.Kind), Argv: spec.Argv, Label: spec.Label, Background: spec.Background,
		})
	}
	return out
}

// encode returns the bytes that are stored, and their hash.
func (m Manifest) encode() ([]byte, string, error) {
	b, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return nil, "", err
	}
	b = append(b, '\n')
	return b, hashBytes(b), nil
}

// MemoryBytes is the size of the memory image, 0 without one.
func (m Manifest) MemoryBytes() int64 {
	if m.Memory == nil {
		return 0
	}
	return m.Memory.Bytes
}

// Created returns the payload of the event that makes the checkpoint known.
func (m Manifest) Created(hash string) event.CheckpointCreatedData {
	return event.CheckpointCreatedData{
		CheckpointID: m.ID, Kind: m.Kind, Message: m.Message, Keep: m.Keep, CutSeq: m.CutSeq, ParentID: m.ParentID,
		Memory: m.Memory != nil, Layers: m.Layers, PauseMS: m.PauseMS, MemoryBytes: m.MemoryBytes(), FileBytes: m.FileBytes,
		ManifestHash: hash,
	}
}
