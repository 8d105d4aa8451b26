package sqlite

import (
	"context"

	"perdure.dev/perdure/internal/id"
)

// HeldLayers returns every layer that a row holds.
func (s *Store) HeldLayers(ctx context.Context) ([]id.Layer, error) {
	rows, err := s.rdb.QueryContext(ctx, "SELECT DISTINCT layer_id FROM layer_refs ORDER BY layer_id")
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var list []id.Layer
	for rows.Next() {
		var l id.Layer
		if err := rows.Scan(&l); err != nil {
			return nil, err
		}
		list = append(list, l)
	}
	return list, rows.Err()
}
