model olmo
