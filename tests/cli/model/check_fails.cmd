model glm-4.5-air --check 355e9 --format csv
