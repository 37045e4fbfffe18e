plan --job reserved/ds3_e64_h200.yaml --routing zipf:exponent=0.6 --details
