explain --job reserved/ds3_e64_h200.yaml
