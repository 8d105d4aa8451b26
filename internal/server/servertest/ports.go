package servertest

import (
	"context"

	"perdure.dev/perdure/api"
	"perdure.dev/perdure/internal/errdefs"
)

// ForwardPort remembers a port.
func (b *Backend) ForwardPort(_ context.Context, ref string, req api.ForwardPort) (api.Port, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s, err := b.find(ref)
	if err != nil {
		return api.Port{}, err
	}
	p := api.Port{SessionID: s.ID, Local: req.Local, Guest: req.Guest}
	s.ports = append(s.ports, p)
	return p, nil
}

// ListPorts lists what is remembered.
func (b *Backend) ListPorts(_ context.Context, ref string) (api.List[api.Port], error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s, err := b.find(ref)
	if err != nil {
		return api.List[api.Port]{}, err
	}
	return api.List[api.Port]{Data: append([]api.Port{}, s.ports...)}, nil
}

// RemovePort forgets a port.
func (b *Backend) RemovePort(_ context.Context, ref string, local uint16) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	s, err := b.find(ref)
	if err != nil {
		return err
	}
	for i, p := range s.ports {
		if p.Local == local {
			s.ports = append(s.ports[:i], s.ports[i+1:]...)
			return nil
		}
	}
	return errdefs.New(errdefs.NotFound, "port_not_found", "there is no forwarded port %d", local)
}
