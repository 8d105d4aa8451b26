-- name: AddLayerRef :exec
INSERT INTO layer_refs (holder_id, layer_id) VALUES (?, ?) ON CONFLICT DO NOTHING;

-- name: DropLayerRefs :exec
DELETE FROM layer_refs WHERE holder_id = ?;

-- name: CopyLayerRefs :exec
INSERT INTO layer_refs (holder_id, layer_id)
SELECT CAST(sqlc.arg(target) AS TEXT), src.layer_id FROM layer_refs AS src WHERE src.holder_id = sqlc.arg(source);

-- name: LayersOf :many
SELECT layer_id FROM layer_refs WHERE holder_id = ? ORDER BY layer_id;
