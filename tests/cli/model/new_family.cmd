model new_family.json
