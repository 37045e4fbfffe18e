model --diff glm-4.5 glm-4.5-air --check 355B
