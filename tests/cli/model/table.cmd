model glm-4.5 --check 355B
